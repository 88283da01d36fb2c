// The sampler for Python: specifications and counts for the runner, single draws for the tests.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "../philox.h"
#include "../sampler.h"
#include "bindings.h"

namespace nb = nanobind;

namespace tribar {
namespace {

template <class T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// One row's sampler with the kernels of a level, as a Python object.
class Sampler {
 public:
  Sampler(int vocab, const std::string& level) : vocab_(vocab), kernels_(kernels_for(level)), scratch_(vocab) {}

  std::tuple<int, std::string, bool> sample(Vector<float> logits, const SamplingSpec& spec, const TokenCounts* counts,
                                            int output_index, std::optional<Vector<uint32_t>> mask) {
    require(logits.size());
    if (spec.has_penalties() && !counts) throw std::invalid_argument("a row with penalties needs its token counts");
    SamplerRow row{&spec, counts, output_index};
    if (mask) {
      row.mask = mask->data();
      row.n_mask_words = static_cast<int>(mask->size());
    }
    nb::gil_scoped_release released;
    const Sampled sampled = tribar::sample(kernels_, logits.data(), vocab_, row, scratch_);
    return {sampled.id, message_of(sampled.status), sampled.was_exact};
  }

  std::tuple<std::string, double, std::vector<int32_t>, std::vector<double>> logprobs(Vector<float> logits, int token,
                                                                                     int k) {
    require(logits.size());
    if (token < 0 || token >= vocab_ || k < 0) throw std::invalid_argument("token or k out of range");
    k = std::min(k, vocab_);
    std::vector<int32_t> ids(k);
    std::vector<double> values(k);
    double logprob = 0;
    const SampleStatus status =
        token_logprobs(kernels_, logits.data(), vocab_, token, k, scratch_, &logprob, ids.data(), values.data());
    return {message_of(status), logprob, ids, values};
  }

 private:
  void require(size_t n) const {
    if (n != static_cast<size_t>(vocab_)) throw std::invalid_argument("logits do not have the size of the vocabulary");
  }

  int vocab_;
  const Kernels& kernels_;
  SamplerScratch scratch_;
};

void make_spec(SamplingSpec* self, double temperature, double top_p, int top_k, double min_p, double presence_penalty,
               double frequency_penalty, double repetition_penalty,
               const std::vector<std::pair<int32_t, double>>& logit_bias, int min_tokens,
               std::vector<int32_t> suppressed, uint64_t seed) {
  new (self) SamplingSpec{temperature,       top_p,              min_p, top_k, presence_penalty,
                          frequency_penalty, repetition_penalty, {},    min_tokens, std::move(suppressed), seed};
  for (const auto& [id, value] : logit_bias) self->bias.push_back({id, value});
}

}  // namespace

void bind_sampler(nb::module_& sampling) {
  nb::class_<SamplingSpec>(sampling, "SamplingSpec", "SamplingParams for the native sampler; ids must lie in the vocabulary.")
      .def("__init__", &make_spec, nb::kw_only(), nb::arg("temperature") = 1.0, nb::arg("top_p") = 1.0,
           nb::arg("top_k") = 0, nb::arg("min_p") = 0.0, nb::arg("presence_penalty") = 0.0,
           nb::arg("frequency_penalty") = 0.0, nb::arg("repetition_penalty") = 1.0,
           nb::arg("logit_bias") = std::vector<std::pair<int32_t, double>>{}, nb::arg("min_tokens") = 0,
           nb::arg("suppressed") = std::vector<int32_t>{}, nb::arg("seed") = 0)
      .def_prop_ro("has_penalties", &SamplingSpec::has_penalties);
  nb::class_<TokenCounts>(sampling, "TokenCounts", "How often each id stands in one sequence, for penalties.")
      .def(
          "__init__",
          [](TokenCounts* self, Vector<int32_t> ids, int n_prompt, int capacity) {
            new (self) TokenCounts(ids.data(), static_cast<int>(ids.size()), n_prompt, capacity);
          },
          nb::arg("ids"), nb::arg("n_prompt"), nb::arg("capacity"))
      .def("add_output", &TokenCounts::add_output, nb::arg("id"));
  nb::class_<Sampler>(sampling, "Sampler", "Draws from single rows of logits, one thread at a time.")
      .def(nb::init<int, const std::string&>(), nb::arg("vocab_size"), nb::arg("level") = "")
      .def("sample", &Sampler::sample, nb::arg("logits"), nb::arg("spec"), nb::arg("counts").none(),
           nb::arg("output_index"), nb::arg("mask").none() = nb::none(),
           "(id, error, whether the fast bounds left it open); id is -1 where there is an error.")
      .def("token_logprobs", &Sampler::logprobs, nb::arg("logits"), nb::arg("token"), nb::arg("k"),
           "(error, log-probability of token, top ids, their log-probabilities).");
  sampling.def("philox_uniform", &philox_uniform, nb::arg("seed"), nb::arg("output_index"), nb::arg("purpose") = kDrawPurpose);
}

}  // namespace tribar
