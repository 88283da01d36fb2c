// A loaded model: what the description says, and the packed weights. Filled once at load, then read only.
#pragma once
#include <cstdint>
#include <vector>

#include "matrix.h"

namespace tribar {

struct RopeTable {
  int rotary_dim = 0;
  std::vector<float> cos_sin;  // [max_model_len][rotary_dim / 2][2]

  const float* at(int position) const { return cos_sin.data() + static_cast<size_t>(position) * rotary_dim; }
};

// A weight applied to one input: one matrix, or several of different types whose outputs lie side by side.
struct Linear {
  struct Part {
    Matrix matrix;
    int first_output = 0;
  };
  std::vector<Part> parts;
  std::vector<float> bias;  // [outputs padded to 16] or empty
};

struct LayerWeights {
  Linear qkv, output, gate_up, down;  // gate_up: strips alternate gate, up
  std::vector<float> attention_norm, q_norm, k_norm, post_attention_norm, mlp_norm, post_mlp_norm;  // empty: none
  int rope = 0;                       // index into Model::ropes
  int window = 0;                     // 0 is full attention
};

struct Model {
  int n_layers = 0, hidden = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0, intermediate = 0, vocab = 0;
  int max_model_len = 0;
  float norm_eps = 1e-5f, attention_scale = 1, attention_softcap = 0, final_softcap = 0, embedding_scale = 1;
  bool is_gelu = false, rope_interleaved = false;
  bool has_fine_activations = false;  // 15 bits where all weights are Int8
  std::vector<LayerWeights> layers;
  std::vector<RopeTable> ropes;
  std::vector<float> final_norm;
  Matrix embedding;  // row gather
  Linear lm_head;

  int q_width() const { return n_heads * head_dim; }
  int kv_width() const { return n_kv_heads * head_dim; }
};

}  // namespace tribar
