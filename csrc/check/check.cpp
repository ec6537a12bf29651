// A program that runs the kernels without Python: every level that the processor has, against plain loops in double.
// For processors that are only there in an emulator (tools/check_aarch64.py). Prints a line per check; exit status 1 if
// one is off.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "attention/attention.h"
#include "attention/latent.h"
#include "attention/picks.h"
#include "check/instructions.h"
#include "check/stored.h"
#include "gemm/gemm.h"
#include "recurrent/recurrent.h"

extern "C" {
const char* core_cpu_isa();
int64_t core_cpu_select_isa(const char* name);
}

namespace {

int failures = 0;

float random_value() { return static_cast<float>(std::rand() % 2001 - 1000) / 1000.0f; }

std::vector<float> random_values(size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = random_value();
  return values;
}

void report(const char* what, int64_t variant, double error, double allowed) {
  bool good = error <= allowed;  // false for a NaN
  std::printf("%-4s %s %lld %s: error %.2g, allowed %.2g\n", good ? "ok" : "OFF", what,
              static_cast<long long>(variant), core_cpu_isa(), error, allowed);
  failures += good ? 0 : 1;
}

// Memory aligned to 64 bytes.
class Memory {
 public:
  explicit Memory(int64_t bytes) : whole_(static_cast<size_t>(bytes) + 64) {}
  char* get() {
    auto at = reinterpret_cast<uintptr_t>(whole_.data());
    return whole_.data() + (64 - at % 64) % 64;
  }

 private:
  std::vector<char> whole_;
};

// ---- attention -----------------------------------------------------------------------------------------------------

constexpr int64_t kHeads = 4, kKvHeads = 2, kDim = 32, kBlockSize = 16, kLength = 150, kQueries = 40;

int64_t bytes_of(int64_t dtype) { return dtype == CORE_F32 ? 4 : dtype == CORE_BF16 || dtype == CORE_F16 ? 2 : 1; }

// A sequence of kLength tokens of which the last kQueries attend.
void check_attention(int64_t kv_dtype, double allowed) {
  std::srand(1);
  int64_t per_head = kBlockSize * (kDim + (kv_dtype == CORE_I8 ? 4 : 0)), stride = 2 * kKvHeads * per_head;
  int64_t blocks = core::ceil_div(kLength, kBlockSize);
  Memory cache(blocks * stride * bytes_of(kv_dtype));
  auto k = random_values(kLength * kKvHeads * kDim), v = random_values(k.size());
  auto q = random_values(kQueries * kHeads * kDim);
  std::vector<float> out(q.size());
  std::vector<int64_t> slots(kLength);
  std::vector<int32_t> table(blocks);
  for (int64_t i = 0; i < kLength; ++i) slots[i] = i;
  for (int64_t i = 0; i < blocks; ++i) table[i] = static_cast<int32_t>(i);
  core_store_kv_args store{k.data(), v.data(), cache.get(),       slots.data(), kLength,  kKvHeads, kDim,
                           kKvHeads * kDim, kKvHeads * kDim, kBlockSize, stride, CORE_F32, kv_dtype, 1, 1.0, 1.0};
  core_cpu_store_kv(&store);
  const int32_t starts[2] = {0, kQueries}, lengths[1] = {kLength};
  core_attention_args args{q.data(),   cache.get(), out.data(), starts, lengths, table.data(), nullptr, nullptr, nullptr,
                           1,          kHeads,      kKvHeads,   kDim,   kBlockSize, stride,
                           kHeads * kDim, kHeads * kDim, blocks, 0, CORE_F32, kv_dtype, 1, 0.25, 0.0, 1.0, 0.0};
  Memory scratch(core_cpu_attention_scratch(&args));
  args.scratch = scratch.get();
  core_cpu_attention(&args);

  double worst = 0.0;
  for (int64_t i = 0; i < kQueries * kHeads; ++i) {
    int64_t head = i % kHeads, seen = kLength - kQueries + i / kHeads + 1;
    std::vector<double> weights(seen), wanted(kDim);
    double total = 0.0;
    for (int64_t t = 0; t < seen; ++t) {
      double score = 0.0;
      int64_t at = (t * kKvHeads + head / (kHeads / kKvHeads)) * kDim;
      for (int64_t d = 0; d < kDim; ++d) score += static_cast<double>(q[i * kDim + d]) * k[at + d];
      total += weights[t] = std::exp(0.25 * score);
      for (int64_t d = 0; d < kDim; ++d) wanted[d] += weights[t] * v[at + d];
    }
    for (int64_t d = 0; d < kDim; ++d) {
      double error = std::fabs(out[i * kDim + d] - wanted[d] / total);
      worst = error <= worst ? worst : error;
    }
  }
  report("attention, kv dtype", kv_dtype, worst, allowed);
}

// ---- latent attention ----------------------------------------------------------------------------------------------

constexpr int64_t kLatent = 48, kRope = 20, kKey = 32, kValue = 24, kValueColumns = 32;

// The same sequence with latents. `queries`: few are absorbed, many expanded. With `picks` a query sees every third
// position before its own, up to so many.
void check_latents(int64_t queries, int64_t kv_dtype, double allowed, int64_t picks = 0) {
  std::srand(4);
  int64_t width = kLatent + kRope, blocks = core::ceil_div(kLength, kBlockSize);
  Memory cache(blocks * kBlockSize * (width + 8) * 4);
  auto kept = random_values(kLength * width), q = random_values(queries * kHeads * kKey);
  auto rotated = random_values(queries * kHeads * kRope), key = random_values(kHeads * kKey * kLatent);
  auto value = random_values(kHeads * kLatent * kValueColumns);
  for (size_t i = 0; i < value.size(); ++i) value[i] *= static_cast<int64_t>(i) % kValueColumns < kValue ? 0.2f : 0.0f;
  for (float& one : key) one *= 0.2f;
  std::vector<float> absorbed(queries * kHeads * kLatent), found(absorbed.size()), out(queries * kHeads * kValue);
  std::vector<int64_t> slots(kLength);
  std::vector<int32_t> table(blocks);
  for (int64_t i = 0; i < kLength; ++i) slots[i] = i;
  for (int64_t i = 0; i < blocks; ++i) table[i] = static_cast<int32_t>(i);
  core_latent_store_args store{kept.data(), kept.data() + kLatent, cache.get(), slots.data(), nullptr, nullptr, 1,
                               kLength, kLatent, kRope, width, width, 1, CORE_F32, kv_dtype, 1};
  core_cpu_latent_store(&store);
  const int32_t starts[2] = {0, static_cast<int32_t>(queries)}, lengths[1] = {kLength};
  auto sees = [&](int64_t position, int64_t t) {
    return picks == 0 || ((position - t) % 3 == 0 && (position - t) / 3 < picks);
  };
  std::vector<int32_t> picked(queries * picks, -1);
  for (int64_t i = 0; i < queries * picks; ++i) {
    int64_t place = kLength - queries + i / picks - i % picks * 3;
    if (place >= 0) picked[i] = static_cast<int32_t>(place);
  }
  core_latent_attention_args args{q.data(), rotated.data(), absorbed.data(), key.data(), value.data(), cache.get(),
                                  found.data(), out.data(), picked.data(), starts, lengths, table.data(), nullptr,
                                  1, kHeads, kLatent, kRope, kKey, kValue, kBlockSize, picks,
                                  kHeads * kKey, kKey, kHeads * kRope, kRope, blocks, CORE_F32, kv_dtype, 1, 0.25};
  core_head_product_args up{q.data(), key.data(), absorbed.data(), starts, lengths, nullptr, 1, kHeads, kKey, kLatent,
                            kHeads * kKey, kKey, kLatent, kKey, kValue, picks, CORE_F32, 1};
  core_head_product_args down{found.data(), value.data(), out.data(), starts, lengths, nullptr,
                              1, kHeads, kLatent, kValue, kHeads * kLatent, kLatent, kLatent, kKey, kValue, picks,
                              CORE_F32, 1};
  Memory scratch(core_cpu_latent_attention_scratch(&args)), product(core_cpu_head_product_scratch(&up) * 2);
  args.scratch = scratch.get();
  up.scratch = down.scratch = product.get();
  core_cpu_head_product(&up);
  core_cpu_latent_attention(&args);
  core_cpu_head_product(&down);

  double worst = 0.0;
  for (int64_t i = 0; i < queries * kHeads; ++i) {
    int64_t head = i % kHeads, seen = kLength - queries + i / kHeads + 1;
    std::vector<double> query(kLatent), gathered(kLatent);
    for (int64_t l = 0; l < kLatent; ++l) {
      const float* column = key.data() + head * kKey * kLatent + l;
      for (int64_t d = 0; d < kKey; ++d) query[l] += static_cast<double>(q[i * kKey + d]) * column[d * kLatent];
    }
    double total = 0.0;
    for (int64_t t = 0; t < seen; ++t) {
      if (!sees(seen - 1, t)) continue;
      double score = 0.0;
      const float *latent = kept.data() + t * width, *rope_key = latent + kLatent;
      for (int64_t l = 0; l < kLatent; ++l) score += query[l] * latent[l];
      for (int64_t d = 0; d < kRope; ++d) score += static_cast<double>(rotated[i * kRope + d]) * rope_key[d];
      double weight = std::exp(0.25 * score);
      total += weight;
      for (int64_t l = 0; l < kLatent; ++l) gathered[l] += weight * latent[l];
    }
    for (int64_t d = 0; d < kValue; ++d) {
      double wanted = 0.0;
      const float* column = value.data() + head * kLatent * kValueColumns + d;
      for (int64_t l = 0; l < kLatent; ++l) wanted += gathered[l] / total * column[l * kValueColumns];
      double error = std::fabs(out[i * kValue + d] - wanted);
      worst = error <= worst ? worst : error;
    }
  }
  const char* form = queries > 8 ? "expanded latents, kv dtype" : "absorbed latents, kv dtype";
  report(picks > 0 ? "picked latents, kv dtype" : form, kv_dtype, worst, allowed);
}

// Index keys of the same sequence: what is left out may be better than what is picked by no more than is allowed.
void check_picks(int64_t queries, int64_t kv_dtype, double allowed) {
  std::srand(7);
  constexpr int64_t size = 20, picks = 37;
  int64_t blocks = core::ceil_div(kLength, kBlockSize);
  Memory cache(blocks * kBlockSize * (size + 4) * 4);
  auto keys = random_values(kLength * size), q = random_values(queries * kHeads * size);
  auto weights = random_values(queries * kHeads);
  std::vector<int32_t> out(queries * picks), table(blocks);
  std::vector<int64_t> slots(kLength);
  for (int64_t i = 0; i < kLength; ++i) slots[i] = i;
  for (int64_t i = 0; i < blocks; ++i) table[i] = static_cast<int32_t>(i);
  core_latent_store_args store{keys.data(), nullptr, cache.get(), slots.data(), nullptr, nullptr, 1,
                               kLength, size, 0, size, 0, 1, CORE_F32, kv_dtype, 1};
  core_cpu_latent_store(&store);
  const int32_t starts[2] = {0, static_cast<int32_t>(queries)}, lengths[1] = {kLength};
  core_pick_args args{q.data(), weights.data(), cache.get(), out.data(), starts, lengths, table.data(), nullptr,
                      1, kHeads, size, kBlockSize, picks, 1, kHeads * size, size, kHeads, blocks,
                      CORE_F32, kv_dtype, 1, 0.5};
  Memory scratch(core_cpu_pick_scratch(&args));
  args.scratch = scratch.get();
  core_cpu_pick(&args);

  double worst = 0.0;
  bool wrong = false;  // a position that is none, or twice
  for (int64_t i = 0; i < queries; ++i) {
    int64_t seen = kLength - queries + i + 1;
    std::vector<bool> found(seen);
    for (int64_t j = 0; j < picks; ++j) {
      int64_t place = out[i * picks + j];
      wrong |= place < 0 || place >= seen || found[place];
      if (!wrong) found[place] = true;
    }
    double least = INFINITY, left = -INFINITY;
    for (int64_t t = 0; t < seen; ++t) {
      double score = 0.0;
      for (int64_t head = 0; head < kHeads; ++head) {
        double met = 0.0;
        for (int64_t d = 0; d < size; ++d) {
          met += static_cast<double>(q[(i * kHeads + head) * size + d]) * keys[t * size + d];
        }
        score += weights[i * kHeads + head] * std::fmax(0.0, 0.5 * met);
      }
      (found[t] ? least : left) = found[t] ? std::fmin(least, score) : std::fmax(left, score);
    }
    worst = left - least <= worst ? worst : left - least;
  }
  report("picks, kv dtype", kv_dtype, wrong ? INFINITY : worst, allowed);
}

// ---- recurrences ---------------------------------------------------------------------------------------------------

constexpr int64_t kStateKeys = 24, kStateValues = 20, kPrompt = 150;

// Two heads that share their keys; `one` by one, tokens do not form chunks.
void check_linear_attention(bool delta, bool per_key, bool one, double allowed) {
  std::srand(5);
  constexpr int64_t heads = 2;
  int64_t per_head = per_key ? kStateKeys : 1;
  auto q = random_values(kPrompt * kStateKeys), k = random_values(q.size());
  auto v = random_values(kPrompt * heads * kStateValues), decay = random_values(kPrompt * heads * per_head);
  auto beta = random_values(kPrompt * heads);
  for (float& value : k) value *= 0.2f;
  for (float& value : decay) value = -std::fabs(value);
  std::vector<float> out(v.size()), state(heads * kStateKeys * kStateValues, std::nanf(""));
  const int64_t slot = 0;
  for (int64_t from = 0; from < kPrompt;) {
    int64_t count = one ? 1 : kPrompt, fresh = from == 0 ? 1 : 0;
    const int32_t starts[2] = {0, static_cast<int32_t>(count)};
    core_linear_attention_args args{q.data() + from * kStateKeys, k.data() + from * kStateKeys,
                                    v.data() + from * heads * kStateValues, decay.data() + from * heads * per_head,
                                    delta ? beta.data() + from * heads : nullptr,
                                    out.data() + from * heads * kStateValues, state.data(), &slot, &fresh, starts,
                                    count, 1, heads, 1, kStateKeys, kStateValues, kStateKeys, kStateKeys,
                                    heads * kStateValues, heads * per_head, heads, heads * kStateKeys * kStateValues,
                                    per_key ? 1 : 0, CORE_F32, 1, 0.5};
    core_cpu_linear_attention(&args);
    from += count;
  }
  double worst = 0.0;
  for (int64_t column = 0; column < heads * kStateValues; ++column) {
    int64_t head = column / kStateValues;
    std::vector<double> s(kStateKeys);
    for (int64_t t = 0; t < kPrompt; ++t) {
      double u = v[t * heads * kStateValues + column], found = 0.0, wanted = 0.0;
      for (int64_t i = 0; i < kStateKeys; ++i) {
        s[i] *= std::exp(static_cast<double>(decay[(t * heads + head) * per_head + (per_key ? i : 0)]));
        found += k[t * kStateKeys + i] * s[i];
      }
      if (delta) u = beta[t * heads + head] * (u - found);
      for (int64_t i = 0; i < kStateKeys; ++i) {
        s[i] += k[t * kStateKeys + i] * u;
        wanted += 0.5 * q[t * kStateKeys + i] * s[i];
      }
      double error = std::fabs(out[t * heads * kStateValues + column] - wanted);
      worst = error <= worst ? worst : error;
    }
  }
  report(one ? "linear attention by token, decays by key" : "linear attention in chunks, decays by key", per_key, worst,
         allowed);
}

void check_scan(int64_t size, double allowed) {
  std::srand(6);
  constexpr int64_t channels = 37, tokens = 50;
  auto x = random_values(tokens * channels), step = random_values(x.size()), a = random_values(channels * size);
  auto b = random_values(tokens * size), c = random_values(b.size());
  for (float& value : step) value = std::fabs(value);
  for (float& value : a) value = -4.0f * std::fabs(value);
  std::vector<float> out(x.size()), state(channels * size, std::nanf(""));
  const int64_t slot = 0, fresh = 1;
  const int32_t starts[2] = {0, tokens};
  core_selective_scan_args args{x.data(), step.data(), a.data(), b.data(), c.data(), out.data(), state.data(), &slot,
                                &fresh, starts, tokens, 1, channels, size, channels, channels, size, size,
                                channels * size, CORE_F32, 1};
  core_cpu_selective_scan(&args);
  double worst = 0.0;
  for (int64_t i = 0; i < channels; ++i) {
    std::vector<double> h(size);
    for (int64_t t = 0; t < tokens; ++t) {
      double delta = step[t * channels + i], wanted = 0.0;
      for (int64_t j = 0; j < size; ++j) {
        h[j] = std::exp(delta * a[i * size + j]) * h[j] + delta * x[t * channels + i] * b[t * size + j];
        wanted += h[j] * c[t * size + j];
      }
      double error = std::fabs(out[t * channels + i] - wanted);
      worst = error <= worst ? worst : error;
    }
  }
  report("scan, state of", size, worst, allowed);
}

void check_recurrences() {
  for (bool delta : {false, true}) {
    for (bool per_key : {false, true}) {
      check_linear_attention(delta, per_key, false, 2e-5);
      check_linear_attention(delta, per_key, true, 2e-5);
    }
  }
  check_scan(16, 1e-5);
  check_scan(7, 1e-5);
}

// ---- products ------------------------------------------------------------------------------------------------------

constexpr int64_t kChannels = 40;

// `x_dtype` bfloat16: activations that a kernel may use as they are, and that are not rounded.
void check_gemm(int64_t format, int64_t rows, int64_t inputs, int64_t x_dtype, double allowed) {
  std::srand(2);
  auto x = random_values(rows * inputs), w = random_values(kChannels * inputs);
  std::vector<float> y(rows * kChannels), scales(kChannels, 1.0f);
  std::vector<core::bf16> halves(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    halves[i] = core::to_bf16(x[i]);
    if (x_dtype == CORE_BF16) x[i] = core::to_float(halves[i]);
  }
  const void* given = x_dtype == CORE_BF16 ? static_cast<const void*>(halves.data()) : x.data();
  int64_t panel = core_cpu_gemm_panel(format, inputs), per_line = format == CORE_GEMM_F32 ? 1 : 2;
  bool int8 = format == CORE_GEMM_W8A8;
  if (int8) per_line = 4;
  int64_t panels = core::ceil_div(kChannels, 16);
  Memory packed(panels * panel);
  for (int64_t c = 0; c < kChannels; ++c) {
    char* at = packed.get() + c / 16 * panel;
    int32_t sum = 0;
    for (int64_t i = 0; i < inputs; ++i) {
      char* element = at + i / per_line * 64 + c % 16 * 4 + i % per_line * (4 / per_line);
      float& value = w[c * inputs + i];
      if (format == CORE_GEMM_F32) std::memcpy(element, &value, 4);
      if (format == CORE_GEMM_BF16) {
        core::bf16 rounded = core::to_bf16(value);
        std::memcpy(element, &rounded, 2);
        value = core::to_float(rounded);
      }
      if (int8) {
        *element = static_cast<char>(std::lrint(value * 100.0f));
        value = static_cast<float>(static_cast<signed char>(*element)) * 0.01f;
        sum += static_cast<signed char>(*element);
      }
    }
    if (int8) {
      constexpr float scale = 0.01f;
      char* tail = at + core::round_up(inputs, 64) / 4 * 64;
      std::memcpy(tail + c % 16 * 4, &scale, 4);
      std::memcpy(tail + 64 + c % 16 * 4, &sum, 4);
    }
  }
  core_gemm_args args{given,     packed.get(), nullptr, nullptr,   y.data(), nullptr,  nullptr, rows,
                      kChannels, inputs,      inputs, kChannels, x_dtype,  CORE_F32, format,  1};
  Memory workspace(core_cpu_gemm_workspace(&args));
  args.workspace = workspace.get();
  core_cpu_gemm(&args);
  double worst = 0.0;
  for (int64_t i = 0; i < rows * kChannels; ++i) {
    double wanted = 0.0;
    for (int64_t j = 0; j < inputs; ++j) {
      wanted += static_cast<double>(x[i / kChannels * inputs + j]) * w[i % kChannels * inputs + j];
    }
    double error = std::fabs(y[i] - wanted);
    worst = error <= worst ? worst : error;
  }
  report("product, format", format, worst, allowed);
}

// Activations of blocks with 15 bits and with 8; other formats are what they are.
void check_stored(int64_t rows) {
  for (int64_t format = CORE_GEMM_W8A16; format < CORE_GEMM_FORMATS; ++format) {
    bool blocks = format >= CORE_GEMM_Q4_0 && format < CORE_GEMM_E4M3;
    double fine = stored_product_error(format, CORE_GEMM_FINE | CORE_GEMM_BY_ROW, rows);
    report("stored product, format", format, fine, blocks ? 1e-3 : 1e-5);
    if (!blocks) continue;
    double coarse = stored_product_error(format, CORE_GEMM_COARSE | CORE_GEMM_BY_ROW, rows);
    report("coarse product, format", format, coarse, 3e-2);
  }
}

// Numbers of rows that make tiles of every height, and of inputs that do not fill their last line.
void check_products() {
  for (int64_t rows : {1, 3, 4, 6, 9}) {
    check_stored(rows);
    for (int64_t inputs : {96, 90}) {
      check_gemm(CORE_GEMM_F32, rows, inputs, CORE_F32, 1e-4);
      check_gemm(CORE_GEMM_BF16, rows, inputs, CORE_F32, 4e-2);
      check_gemm(CORE_GEMM_BF16, rows, inputs, CORE_BF16, 1e-4);
      check_gemm(CORE_GEMM_W8A8, rows, inputs, CORE_F32, 8e-2);
    }
  }
}

}  // namespace

int main() {
  compute_refused_instructions();
  const char* levels[] = {"base", "avx2",     "avx_vnni",  "avx512",   "avx512_vnni", "avx512_bf16",
                          "amx",  "neon_dot", "neon_bf16", "neon_i8mm"};
  for (const char* level : levels) {
    if (core_cpu_select_isa(level) != 0) continue;
    check_attention(CORE_F32, 1e-5);
    check_attention(CORE_BF16, 5e-3);
    check_attention(CORE_F16, 1e-3);
    check_attention(CORE_I8, 1e-2);
    check_attention(CORE_F8_E4M3, 6e-2);
    check_attention(CORE_F8_E5M2, 1.2e-1);
    for (int64_t queries : {3, 100}) {
      check_latents(queries, CORE_F32, 1e-5);
      check_latents(queries, CORE_BF16, 1e-2);
      check_latents(queries, CORE_I8, 2e-2);
      check_latents(queries, CORE_F8_E4M3, 1.2e-1);
      check_latents(queries, CORE_F32, 1e-5, 20);
      check_latents(queries, CORE_I8, 2e-2, 20);
    }
    for (int64_t queries : {1, 100}) {
      check_picks(queries, CORE_F32, 1e-5);
      check_picks(queries, CORE_BF16, 2e-2);
      check_picks(queries, CORE_I8, 3e-2);
      check_picks(queries, CORE_F8_E4M3, 2e-1);
    }
    check_recurrences();
    check_products();
  }
  std::printf("instructions that the processor refused and this program computed: %lld\n", refused_instructions());
  return failures == 0 ? 0 : 1;
}
