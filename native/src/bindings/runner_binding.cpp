// The runner for Python: loading piece by piece, then one call per step.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "../runner.h"
#include "bindings.h"

namespace nb = nanobind;

namespace tribar {
namespace {

template <class T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = Vector<uint8_t>;
using Part = std::tuple<int, int, int, Bytes>;  // ggml type, n, k, stored bytes
using ScoredTuple = std::tuple<int, int, double, std::vector<int32_t>, std::vector<double>>;

void require(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument(message);
}

std::vector<float> floats(const std::optional<Vector<float>>& array) {
  return array ? std::vector<float>(array->data(), array->data() + array->size()) : std::vector<float>();
}

std::vector<Stored> stored_of(const std::vector<Part>& parts) {
  std::vector<Stored> stored;
  for (const auto& [type, n, k, bytes] : parts) {
    const Stored part{static_cast<StoredType>(type), n, k, bytes.data()};
    const int n_elements = layout_of(part.type).n_elements;
    require(n_elements > 0 && n > 0 && k > 0 && k % n_elements == 0, "a stored type or shape that cannot be packed");
    require(k == std::get<2>(parts[0]) && bytes.size() == n * part.row_bytes(), "stored bytes of the wrong size");
    stored.push_back(part);
  }
  require(!stored.empty(), "a linear has at least one part");
  return stored;
}

Linear pack(Runner& runner, const std::vector<Part>& parts, int rule, bool is_gated,
            const std::optional<Vector<float>>& bias) {
  return runner.pack(stored_of(parts), static_cast<WeightsRule>(rule), is_gated, floats(bias));
}

LayerWeights& layer_of(Runner& runner, int layer) {
  require(layer >= 0 && layer < static_cast<int>(runner.model.layers.size()), "no such layer");
  return runner.model.layers[layer];
}

void set_layer(Runner& runner, int layer, const std::string& name, const std::vector<Part>& parts, int rule,
               const std::optional<Vector<float>>& bias) {
  LayerWeights& weights = layer_of(runner, layer);
  Linear* target = name == "qkv" ? &weights.qkv : name == "o" ? &weights.output : name == "gate_up" ? &weights.gate_up
                   : name == "down" ? &weights.down : nullptr;
  require(target, "no linear " + name);
  *target = pack(runner, parts, rule, name == "gate_up", bias);
}

void set_norm(Runner& runner, int layer, const std::string& name, const Vector<float>& weight) {
  LayerWeights& weights = layer_of(runner, layer);
  const std::pair<const char*, std::vector<float>*> norms[] = {
      {"attention_norm", &weights.attention_norm}, {"q_norm", &weights.q_norm}, {"k_norm", &weights.k_norm},
      {"post_attention_norm", &weights.post_attention_norm}, {"mlp_norm", &weights.mlp_norm},
      {"post_mlp_norm", &weights.post_mlp_norm}};
  for (const auto& [known, target] : norms)
    if (name == known) {
      target->assign(weight.data(), weight.data() + weight.size());
      return;
    }
  throw std::invalid_argument("no norm " + name);
}

void set_attention(Runner& runner, int layer, int rope, int window) {
  require(rope >= 0 && rope < static_cast<int>(runner.model.ropes.size()), "no such rope");
  layer_of(runner, layer).rope = rope;
  layer_of(runner, layer).window = window;
}

int add_rope(Runner& runner, const nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>& cos_sin) {
  require(cos_sin.shape(2) == 2, "cos and sin of each position and pair");
  RopeTable table;
  table.rotary_dim = static_cast<int>(2 * cos_sin.shape(1));
  table.cos_sin.assign(cos_sin.data(), cos_sin.data() + cos_sin.size());
  runner.model.ropes.push_back(std::move(table));
  return static_cast<int>(runner.model.ropes.size()) - 1;
}

void set_ends(Runner& runner, const std::vector<Part>& embedding, const std::vector<Part>& lm_head, int rule,
              const Vector<float>& final_norm) {
  Model& model = runner.model;
  const Linear packed = pack(runner, embedding, rule, false, std::nullopt);
  model.embedding = packed.parts[0].matrix;
  model.lm_head = lm_head.empty() ? packed : pack(runner, lm_head, rule, false, std::nullopt);
  model.final_norm.assign(final_norm.data(), final_norm.data() + final_norm.size());
}

void describe(Runner& runner, const nb::dict& d) {
  Model& model = runner.model;
  const auto number = [&](const char* key) { return nb::cast<double>(d[key]); };
  model.n_layers = static_cast<int>(number("n_layers"));
  model.hidden = static_cast<int>(number("hidden_size"));
  model.n_heads = static_cast<int>(number("n_heads"));
  model.n_kv_heads = static_cast<int>(number("n_kv_heads"));
  model.head_dim = static_cast<int>(number("head_dim"));
  model.intermediate = static_cast<int>(number("intermediate_size"));
  model.vocab = static_cast<int>(number("vocab_size"));
  model.max_model_len = static_cast<int>(number("max_model_len"));
  model.norm_eps = static_cast<float>(number("norm_eps"));
  model.attention_scale = static_cast<float>(number("attention_scale"));
  model.attention_softcap = static_cast<float>(number("attention_softcap"));
  model.final_softcap = static_cast<float>(number("final_softcap"));
  model.embedding_scale = static_cast<float>(number("embedding_scale"));
  model.is_gelu = nb::cast<bool>(d["is_gelu"]);
  model.rope_interleaved = nb::cast<bool>(d["rope_interleaved"]);
  model.has_fine_activations = nb::cast<bool>(d["has_fine_activations"]);
  model.layers.resize(model.n_layers);
}

void add_row(Runner& runner, int row, const Vector<int32_t>& ids, int n_prompt, const SamplingSpec& spec,
             int n_logprobs, int n_prompt_logprobs, bool hidden) {
  runner.add(row, ids.data(), static_cast<int>(ids.size()), n_prompt, spec, {n_logprobs, n_prompt_logprobs, hidden});
}

ScoredTuple tuple_of(const StepOutcome& outcome, const Scored& scored) {
  const int32_t* ids = outcome.top_ids.data() + scored.first_top;
  const double* logprobs = outcome.top_logprobs.data() + scored.first_top;
  return {scored.work, scored.id, scored.logprob, {ids, ids + scored.n_top}, {logprobs, logprobs + scored.n_top}};
}

using Masks = std::vector<std::optional<Vector<uint32_t>>>;

nb::tuple step(Runner& runner, const Vector<int32_t>& rows, const Vector<int32_t>& positions,
               const Vector<int32_t>& n_tokens, const Vector<bool>& samples, const Masks& masks) {
  const size_t n = rows.size();
  require(positions.size() == n && n_tokens.size() == n && samples.size() == n, "arrays of unequal length");
  require(masks.empty() || masks.size() == n, "one mask or None per entry");
  std::vector<WorkItem> work(n);
  for (size_t i = 0; i < n; ++i) {
    work[i] = {rows.data()[i], positions.data()[i], n_tokens.data()[i], samples.data()[i]};
    if (!masks.empty() && masks[i]) {
      work[i].mask = masks[i]->data();
      work[i].n_mask_words = static_cast<int>(masks[i]->size());
    }
  }
  const StepOutcome* outcome;
  {
    nb::gil_scoped_release released;
    outcome = &runner.step(work);
  }
  nb::list token_scores, prompt_scores, hidden;
  for (const Scored& scored : outcome->token_scores) token_scores.append(nb::cast(tuple_of(*outcome, scored)));
  for (const Scored& scored : outcome->prompt_scores) prompt_scores.append(nb::cast(tuple_of(*outcome, scored)));
  const size_t n_hidden = runner.model.hidden;
  for (size_t i = 0; i < outcome->hidden_works.size(); ++i) {
    const float* values = outcome->hidden.data() + i * n_hidden;
    hidden.append(nb::make_tuple(outcome->hidden_works[i], nb::bytes(values, n_hidden * sizeof(float))));
  }
  return nb::make_tuple(outcome->tokens, outcome->statuses, token_scores, prompt_scores, hidden);
}

}  // namespace

void bind_runner(nb::module_& m) {
  nb::class_<Runner>(m, "Runner", "Weights, KV memory and rows of one model. Calls come from one thread.")
      .def(nb::init<const std::string&, int, int, int>(), nb::arg("level"), nb::arg("n_threads"), nb::arg("max_rows"),
           nb::arg("max_model_len"))
      .def("describe", &describe, nb::arg("settings"))
      .def("add_rope", &add_rope, nb::arg("cos_sin"))
      .def("set_attention", &set_attention, nb::arg("layer"), nb::arg("rope"), nb::arg("window"))
      .def("set_layer", &set_layer, nb::arg("layer"), nb::arg("name"), nb::arg("parts"), nb::arg("rule"),
           nb::arg("bias").none() = nb::none())
      .def("set_norm", &set_norm, nb::arg("layer"), nb::arg("name"), nb::arg("weight"))
      .def("set_ends", &set_ends, nb::arg("embedding"), nb::arg("lm_head"), nb::arg("rule"), nb::arg("final_norm"))
      .def("start", [](Runner& r, int kv_type, int n_blocks) { r.start(static_cast<KvType>(kv_type), n_blocks); },
           nb::arg("kv_type"), nb::arg("n_blocks"))
      .def("add", &add_row, nb::arg("row"), nb::arg("ids"), nb::arg("n_prompt"), nb::arg("spec"),
           nb::arg("n_logprobs"), nb::arg("n_prompt_logprobs"), nb::arg("hidden"))
      .def("drop", &Runner::drop, nb::arg("row"))
      .def("append",
           [](Runner& r, int row, const Vector<int32_t>& blocks) {
             r.append(row, blocks.data(), static_cast<int>(blocks.size()));
           },
           nb::arg("row"), nb::arg("blocks"))
      .def("step", &step, nb::arg("rows"), nb::arg("positions"), nb::arg("n_tokens"), nb::arg("samples"),
           nb::arg("masks"), "(tokens, statuses, token scores, prompt scores, hidden states)")
      .def("logits",
           [](Runner& r, const Vector<int32_t>& ids,
              const nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>& out) {
             require(out.shape(0) == ids.size() && static_cast<int>(out.shape(1)) == r.model.vocab, "shape of out");
             nb::gil_scoped_release released;
             r.logits(ids.data(), static_cast<int>(ids.size()), out.data());
           },
           nb::arg("ids"), nb::arg("out"))
      .def_prop_ro("block_bytes", [](const Runner& r) { return r.kv.n_layers * r.kv.block_bytes(); })
      .def("export_block",
           [](const Runner& r, int block, const nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>& out) {
             const size_t n = r.kv.block_bytes();
             require(block >= 0 && block < r.kv.n_blocks && out.size() == r.kv.n_layers * n, "block or size");
             for (int layer = 0; layer < r.kv.n_layers; ++layer)
               std::memcpy(out.data() + layer * n, r.kv.head(layer, block, 0), n);
           },
           nb::arg("block"), nb::arg("out"))
      .def("import_block",
           [](const Runner& r, int block, const Bytes& contents) {
             const size_t n = r.kv.block_bytes();
             require(block >= 0 && block < r.kv.n_blocks && contents.size() == r.kv.n_layers * n, "block or size");
             for (int layer = 0; layer < r.kv.n_layers; ++layer)
               std::memcpy(r.kv.head(layer, block, 0), contents.data() + layer * n, n);
           },
           nb::arg("block"), nb::arg("contents"))
      .def_prop_ro("packed_bytes", &Runner::packed_bytes)
      .def_prop_ro("level", [](const Runner& r) { return std::string(r.level()); });
  m.def("status_message", [](int status) { return std::string(message_of(static_cast<SampleStatus>(status))); });
}

}  // namespace tribar
