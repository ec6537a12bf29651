// A program that checks emulated_tiles.h, which is included before it: results against plain loops, roundings that tell
// the manual's order of operations from others, and what is to be refused. Exit status 1 if something is off.
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>

namespace {

constexpr int kM = 5, kN = 9, kK = 7;  // rows, columns of dwords, and dwords that are multiplied
int failures = 0;

void expect(bool good, const char* what) {
  if (good) return;
  std::printf("OFF  %s\n", what);
  ++failures;
}

struct alignas(64) Config {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};

  void set(int tile, int height, int dwords) {
    rows[tile] = static_cast<uint8_t>(height);
    bytes[tile] = static_cast<uint16_t>(4 * dwords);
  }
};

// Sums in tile 0, and in 1 and 2 what is multiplied.
Config config_for(int m, int n, int k) {
  Config config;
  config.set(0, m, n);
  config.set(1, m, k);
  config.set(2, k, n);
  return config;
}

// Whether a process that does it is ended.
template <typename Body>
bool refused(const Body& body) {
  pid_t child = fork();
  if (child == 0) {
    close(STDERR_FILENO);
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status);
}

float widened(uint16_t bits) { return core::emulated::as_number(static_cast<uint32_t>(bits) << 16); }

uint16_t narrowed(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return static_cast<uint16_t>(bits >> 16);
}

void check_bytes() {
  int8_t a[kM][4 * kK], b[kK][4 * kN];
  int32_t sums[kM][kN], found[kM][kN];
  for (auto& row : a) for (int8_t& value : row) value = static_cast<int8_t>(std::rand());
  for (auto& row : b) for (int8_t& value : row) value = static_cast<int8_t>(std::rand());
  for (auto& row : sums) for (int32_t& value : row) value = std::rand() - 0x3fffffff;
  _tile_loadd(0, sums, sizeof sums[0]);
  _tile_loadd(1, a, sizeof a[0]);
  _tile_loadd(2, b, sizeof b[0]);
  _tile_dpbssd(0, 1, 2);
  _tile_stored(0, found, sizeof found[0]);
  for (int m = 0; m < kM; ++m) {
    for (int n = 0; n < kN; ++n) {
      int64_t wanted = sums[m][n];
      for (int i = 0; i < 4 * kK; ++i) wanted += a[m][i] * b[i / 4][4 * n + i % 4];
      expect(wanted == found[m][n], "a sum of products of bytes");
    }
  }
}

void check_pairs() {
  uint16_t a[kM][2 * kK], b[kK][2 * kN];
  float sums[kM][kN], found[kM][kN];
  auto random = [] { return static_cast<float>(std::rand() % 2001 - 1000) / 1000.0f; };
  for (auto& row : a) for (uint16_t& value : row) value = narrowed(random());
  for (auto& row : b) for (uint16_t& value : row) value = narrowed(random());
  for (auto& row : sums) for (float& value : row) value = random();
  _tile_loadd(0, sums, sizeof sums[0]);
  _tile_loadd(1, a, sizeof a[0]);
  _tile_loadd(2, b, sizeof b[0]);
  _tile_dpbf16ps(0, 1, 2);
  _tile_stored(0, found, sizeof found[0]);
  for (int m = 0; m < kM; ++m) {
    for (int n = 0; n < kN; ++n) {
      double wanted = sums[m][n];
      for (int i = 0; i < 2 * kK; ++i) {
        wanted += static_cast<double>(widened(a[m][i])) * widened(b[i / 2][2 * n + i % 2]);
      }
      expect(std::fabs(wanted - found[m][n]) < 1e-5, "a sum of products of bfloat16");
    }
  }
}

// sum + first * first + second * second.
float one_pair(float sum, float first_a, float first_b, float second_a, float second_b) {
  uint16_t a[2] = {narrowed(first_a), narrowed(second_a)}, b[2] = {narrowed(first_b), narrowed(second_b)};
  _tile_loadd(0, &sum, 4);
  _tile_loadd(1, a, 4);
  _tile_loadd(2, b, 4);
  _tile_dpbf16ps(0, 1, 2);
  _tile_stored(0, &sum, 4);
  return sum;
}

void check_rounding() {
  expect(one_pair(0.0f, 1e-39f, 1.0f, 0.0f, 0.0f) == 0.0f, "a denormal number is read as zero");
  expect(one_pair(1e-40f, 0.0f, 0.0f, 0.0f, 0.0f) == 0.0f, "and so is a denormal sum");
  expect(one_pair(0.0f, 1e-20f, 1e-20f, 0.0f, 0.0f) == 0.0f, "a denormal product becomes zero");
  expect(one_pair(0x1p24f, 1.0f, 1.0f, 1.0f, 1.0f) == 0x1p24f + 2.0f, "products are added to each other first");
  expect(std::isnan(one_pair(0.0f, 1e30f, 1e30f, -1e30f, 1e30f)), "two sums of a pair may both be infinite");
}

void check_refusals() {
  Config config = config_for(kM, kN, kK);
  expect(refused([] { _tile_zero(3); }), "a tile without a configuration");
  expect(refused([] { _tile_dpbssd(0, 1, 1); }), "one tile as both operands");
  expect(refused([] { _tile_dpbf16ps(0, 2, 1); }), "shapes that do not fit");
  expect(!refused([] { _tile_dpbf16ps(0, 1, 2); }), "shapes that do are not refused");
  auto changed = [&](auto change) {
    Config other = config;
    change(other);
    return refused([&] { _tile_loadconfig(&other); });
  };
  expect(changed([](Config& c) { c.set(3, 17, 1); }), "17 rows");
  expect(changed([](Config& c) { c.set(3, 1, 17); }), "17 dwords");
  expect(changed([](Config& c) { c.set(3, 1, 0); }), "rows without bytes");
  expect(changed([](Config& c) { c.set(8, 1, 1); }), "a ninth tile");
  expect(changed([](Config& c) { c.reserved[3] = 1; }), "a reserved byte");
  _tile_release();
  expect(refused([] { _tile_zero(0); }), "a tile after all were given back");
}

}  // namespace

int main() {
  Config config = config_for(kM, kN, kK), one = config_for(1, 1, 1);
  _tile_loadconfig(&config);
  check_bytes();
  check_pairs();
  _tile_loadconfig(&one);
  check_rounding();
  _tile_loadconfig(&config);
  check_refusals();
  std::printf("emulated tiles: %d off\n", failures);
  return failures == 0 ? 0 : 1;
}
