// Which variant where on an H100 or H200 (132 SMs): by make_choice.py, from 1058 points of the map.
//
// The least predicted time decides.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <queue>
#include <string_view>
#include <utility>
#include <vector>

// How tiles come to SMs: the next free SM takes one, with groups of heads that are even or not; SMs go back and forth;
// or one or two blocks of clusters of two fit an SM.
enum class Tiles { kFree, kEven, kWalk, kPairs1, kPairs2 };

// A variant's rows per tile at D = 64 and 128 (0: does not run), its most keys (0: no limit), and by D and class of
// shapes the factors, us, of: a launch; 64 keys of the fullest SM, with what tiles take beside them; the same of the
// mean SM; a tile of the fullest SM; 64 keys of all rows per SM; 64 keys of the longest row; 64 rows per SM. Without
// factors it was never near the fastest.
struct Cost {
  std::string_view variant;
  std::int64_t rows[2], most_keys;
  Tiles tiles;
  double us[2][4][7];
};

inline constexpr Cost kCosts[] = {
    {"between_even",
     {256, 192},
     0,
     Tiles::kEven,
     {{{1.295, 0.7345, 0, 0.7531, 0.1451, 0, 0},
       {2.014, 0.6602, 0.1334, 0.6263, 0.05599, 0, 0},
       {1.907, 0.7959, 0.05179, 0.5033, 0.005404, 0.008222, 0.3328},
       {0.1806, 0.8063, 0.02827, 0.656, 0.005735, 0.02388, 0.1914}},
      {{1.169, 0.5616, 0.01005, 0.8322, 0.1787, 0.2885, 0.6085},
       {1.52, 0.4034, 0.2423, 1.731, 0.0896, 0.08346, 0.5002},
       {0.1229, 0.8691, 0.09323, 0, 0.008912, 0.04536, 0.5055},
       {0, 0.801, 0.1254, 1.236, 0.01857, 0.00654, 0}}}},
    {"between_even_dynamic",
     {256, 192},
     0,
     Tiles::kEven,
     {{{5.061, 0.5539, 0, 0.06881, 0.1646, 0.1342, 0},
       {5.328, 0.602, 0.0262, 0, 0.07627, 0.1341, 0},
       {5.618, 0.7836, 0.03448, 0, 0.01566, 0.01283, 0},
       {7.225, 0.6919, 0.01576, 0, 0.04094, 0.06715, 0}},
      {{4.837, 0.4359, 0, 0.4346, 0.364, 0.3729, 0.1326},
       {6.604, 0.2429, 0.2625, 0.7729, 0.1688, 0.04202, 0.3299},
       {4.281, 0.9004, 0.05596, 0, 0.01209, 0.03996, 0.0794},
       {2.947, 0.7945, 0.01397, 0.005263, 0.06049, 0.1786, 0.01761}}}},
    {"between_narrow",
     {192, 128},
     0,
     Tiles::kEven,
     {{{1.133, 0.5723, 0, 0.4737, 0.1445, 0.1822, 0.1351},
       {1.295, 0.4023, 0.1413, 1.248, 0.04526, 0.09014, 0.1573},
       {2.059, 0.61, 0.06119, 0.005204, 0.008925, 0.01319, 0.391},
       {0.4485, 0.5993, 0.05411, 0.7846, 0.008421, 0.02619, 0.2854}},
      {{1.571, 0.4261, 0, 1.172, 0.2116, 0.06287, 0.7253},
       {0.7701, 0.5205, 0.1934, 1.342, 0.01264, 0.08277, 0.3728},
       {1.263, 0.7121, 0.05271, 0.3997, 0.002469, 0.07242, 0.3491},
       {0.5429, 0.7117, 0.02916, 1.693, 0.007144, 0.006994, 0}}}},
    {"between_narrow_dynamic",
     {192, 128},
     0,
     Tiles::kEven,
     {{{4.495, 0.3542, 0, 0.2593, 0.2082, 0.2345, 0},
       {4.618, 0.3368, 0.1251, 0.0979, 0.07047, 0.2006, 0.1133},
       {5.134, 0.5838, 0.03485, 0, 0.02494, 0.02286, 0},
       {4.226, 0.5414, 0.06007, 0.008061, 0.0272, 0.08335, 0}},
      {{5.216, 0.1805, 0.04056, 0.3717, 0.2375, 0.328, 0.693},
       {5.219, 0.4943, 0.1311, 0, 0.03359, 0.02277, 0.4207},
       {3.626, 0.6454, 0.05628, 0, 0.02062, 0.04483, 0},
       {3.69, 0.6784, 0.02687, 0.1535, 0.01709, 0.05765, 0.05344}}}},
    {"between_wide",
     {192, 128},
     0,
     Tiles::kEven,
     {{{1.365, 0.5849, 0, 0.8342, 0, 0.16, 0.4866},
       {1.871, 0.1364, 0.2609, 2.096, 0.06487, 0.1898, 0.3044},
       {3.842, 0.5627, 0.05971, 0, 0.01074, 0.00545, 0.7752},
       {1.36, 0.5516, 0.04087, 0.92, 0.01629, 0.02588, 0.5341}},
      {{1.851, 0.4519, 0.2906, 2.045, 0, 0, 0},
       {1.685, 0.4697, 0.2413, 1.805, 0, 0.08865, 0.366},
       {3.38, 0.6044, 0.07475, 0, 0.004855, 0.05585, 1.311},
       {0.5618, 0.6333, 0.03493, 2.846, 0.005525, 0.008197, 0.2696}}}},
    {"wgmma_persistent",
     {256, 192},
     0,
     Tiles::kWalk,
     {{{2.938, 0.49, 0.02638, 0.1764, 0.1734, 0.1939, 0.01149},
       {3.627, 0.6127, 0.006569, 0, 0.08083, 0.08435, 0},
       {3.633, 0.7811, 0.03905, 0, 0.01365, 0.003402, 0.000211},
       {2.028, 0.7702, 0, 0, 0.02154, 0.04664, 0}},
      {{1.875, 0.2034, 0.06538, 1.077, 0.2364, 0.7941, 0.4837},
       {3.854, 0.377, 0.2746, 0.3856, 0.1466, 0.04378, 0.0629},
       {1.763, 0.8919, 0.07457, 0, 0.008672, 0.03943, 0.05363},
       {2.599, 0.679, 0.09752, 0, 0.07486, 0.03372, 0}}}},
    {"wgmma_key_groups_2",
     {128, 64},
     0,
     Tiles::kFree,
     {{{1.351, 0.5141, 0, 1.01, 0.07337, 0.05459, 0.2493},
       {1.017, 0.3053, 0.1392, 2.148, 0.001362, 0.04387, 0.1083},
       {1.569, 0.3989, 0.03845, 1.571, 0.001432, 0, 0.4724},
       {1.255, 0.3803, 0.03278, 1.48, 0.01141, 0, 0.7103}},
      {{1.649, 0.2163, 0.256, 1.792, 0, 0, 0.01094},
       {0.6389, 0.2616, 0.0372, 2.671, 0.03031, 0.0009423, 0.8228},
       {0.8967, 0.3547, 0.0788, 0.8855, 0.003832, 0, 0.7605},
       {0, 0.3409, 0.09102, 2.617, 0.00385, 0, 0.3733}}}},
    {"wgmma_key_groups_4",
     {64, 0},
     0,
     Tiles::kFree,
     {{{1.401, 0.1201, 0.1038, 2.314, 0, 0.04052, 0.1034},
       {0.9035, 0.09703, 0.08178, 2.805, 0, 0.09801, 0.232},
       {1.333, 0.2262, 0.02203, 2.082, 0, 0, 0.6868},
       {1.641, 0.1999, 0.03742, 1.119, 0.01854, 0, 1.872}},
      {{0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0}}}},
    {"cluster_keys",
     {64, 0},
     512,
     Tiles::kPairs2,
     {{{1.797, 0, 0, 1.298, 0.7291, 0, 0.01096},
       {1.29, 0.002686, 0, 1.927, 0.9537, 0.05554, 0},
       {0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0}},
      {{0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0}}}},
    {"cluster_rows",
     {128, 0},
     1024,
     Tiles::kPairs1,
     {{{1.366, 0, 0, 2.779, 0.4012, 0, 0.1353},
       {1.166, 0.2671, 0.00173, 2.119, 0.5168, 0, 0},
       {0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0}},
      {{0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0}}}},
    {"cluster_wide_keys",
     {0, 64},
     512,
     Tiles::kPairs1,
     {{{0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0}},
      {{0.9607, 0.04296, 0.1187, 2.328, 0.1253, 0, 0},
       {0.544, 0.2579, 0, 2.422, 0.1012, 0, 0},
       {0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0}}}},
};

struct Load {
  double fullest, mean, waves;
};

template <typename Shape>
Load load_of(const Shape& s, bool causal, std::int64_t rows, Tiles order) {
  constexpr std::int64_t kSms = 132, kMostWaves = 64, kBeside = 3;
  const std::int64_t tiles = (s.S + rows - 1) / rows, keys = (s.S + 63) / 64, heads = s.B * s.H;
  const auto each = [&](std::int64_t i) {
    return static_cast<double>((causal ? std::min(keys, ((i + 1) * rows + 63) / 64) : keys) + kBeside);
  };
  const auto waves = static_cast<double>((tiles * heads + kSms - 1) / kSms);
  double mean = 0;
  for (std::int64_t i = 0; i < tiles; ++i) mean += each(i) * static_cast<double>(heads) / kSms;
  if (!causal) return {waves * each(0), mean, waves};
  if (tiles * heads > kMostWaves * kSms) return {mean, mean, waves};
  std::int64_t group = std::clamp<std::int64_t>((24 << 20) / (4 * s.S * s.D * s.HKV / s.H), 1, heads);
  if (order == Tiles::kEven) group = (heads + (heads + group - 1) / group - 1) / ((heads + group - 1) / group);
  using Sm = std::pair<double, double>;  // keys, tiles
  std::array<Sm, kSms> walked{};
  std::priority_queue<Sm, std::vector<Sm>, std::greater<Sm>> free{std::greater<Sm>(), std::vector<Sm>(kSms)};
  std::int64_t at = 0;
  for (std::int64_t first = 0; first < heads; first += group) {
    for (std::int64_t i = tiles; i-- > 0;) {
      for (std::int64_t head = first; head < std::min(first + group, heads); ++head, ++at) {
        if (order == Tiles::kWalk) {
          Sm& sm = walked[at / kSms % 2 ? kSms - 1 - at % kSms : at % kSms];
          sm = {sm.first + each(i), sm.second + 1};
        } else {
          const Sm sm = free.top();
          free.pop();
          free.emplace(sm.first + each(i), sm.second + 1);
        }
      }
    }
  }
  Sm most = *std::max_element(walked.begin(), walked.end());
  for (; !free.empty(); free.pop()) most = std::max(most, free.top());
  return {most.first, mean, most.second};
}

template <typename Shape>
double predicted_us(const Cost& cost, const Shape& s, bool causal) {
  const bool is_pair = cost.tiles == Tiles::kPairs1 || cost.tiles == Tiles::kPairs2;
  const int kind = s.S <= 256 ? 0 : s.S <= 768 || is_pair ? 1 : 2 + causal;
  const double* factors = cost.us[s.D / 128][kind];
  const std::int64_t rows = cost.rows[s.D / 128];
  const bool is_near = std::any_of(factors, factors + 7, [](double us) { return us > 0; });
  if (!is_near || !rows || (cost.most_keys && s.S > cost.most_keys)) return 1e300;
  const std::int64_t heads = s.B * s.H;
  const double keys = static_cast<double>((s.S + 63) / 64), each = keys * static_cast<double>(heads) / 132;
  double terms[] = {1, 0, 0, 0, each * (causal ? (keys + 1) / 2 : keys), keys, each};
  if (is_pair) {
    const std::int64_t blocks = (s.S + rows - 1) / rows * heads * 2;
    const std::int64_t fit = 132 * (cost.tiles == Tiles::kPairs2 ? 2 : 1);
    const double waves = static_cast<double>((blocks + fit - 1) / fit), share = static_cast<double>(blocks) / 132;
    terms[1] = waves * keys;
    terms[2] = share * (causal ? (keys + static_cast<double>(rows) / 64) / 2 : keys);
    terms[3] = waves;
    terms[4] = share;
  } else {
    const Load load = load_of(s, causal, rows, cost.tiles);
    terms[1] = load.fullest;
    terms[2] = load.mean;
    terms[3] = load.waves;
  }
  double us = 0;
  for (int i = 0; i < 7; ++i) us += factors[i] * terms[i];
  return us;
}

template <typename Shape>
std::string_view choose(const Shape& s, bool causal, bool has_key_groups_4) {
  std::string_view choice;
  double least = 0;
  for (const Cost& cost : kCosts) {
    if (cost.variant == "wgmma_key_groups_4" && !has_key_groups_4) continue;
    const double us = predicted_us(cost, s, causal);
    if (choice.empty() || us < least) choice = cost.variant, least = us;
  }
  return choice;
}
