// Which variant where on an H100 or H200 (132 SMs): by make_choice.py, from 672 points of the map.
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
     {{{1.021, 0.7673, 0, 0.8018, 0.1161, 0, 0},
       {1.503, 0.6728, 0.04971, 1.16, 0.07191, 0.009701, 0},
       {1.779, 0.7912, 0.04729, 0.5274, 0.009379, 0.007122, 0.3329},
       {0.9716, 0.799, 0.04146, 0.8159, 0.00481, 0, 0.138}},
      {{0.8824, 0.6569, 0.02997, 0.6309, 0.1676, 0.258, 0.5234},
       {0.1676, 0.5271, 0.1082, 2.778, 0.08138, 0.1667, 0.2318},
       {0, 0.9033, 0.06287, 0.1117, 0.009946, 0.02935, 0.4039},
       {0, 0.7713, 0.1611, 1.203, 0.01968, 0.004693, 0}}}},
    {"between_even_dynamic",
     {256, 192},
     0,
     Tiles::kEven,
     {{{4.899, 0.5225, 0, 0.1998, 0.1768, 0.1966, 0},
       {5.143, 0.6352, 0.007079, 0.1146, 0.07324, 0.1164, 0},
       {5.323, 0.7666, 0.03166, 0, 0.02235, 0.0187, 0},
       {8.572, 0.6765, 0.01024, 0, 0.04803, 0.05089, 0}},
      {{5.418, 0.4542, 0, 0.4167, 0.4088, 0.1124, 0},
       {5.406, 0.2624, 0.3082, 0.8309, 0.1521, 0.2646, 0.1185},
       {4.287, 0.8621, 0.1086, 0, 0.009337, 0.03842, 0.06713},
       {3.382, 0.716, 0.08256, 0, 0.07346, 0.08892, 0.009142}}}},
    {"between_narrow",
     {192, 128},
     0,
     Tiles::kEven,
     {{{0.9759, 0.6441, 0.01623, 0.3064, 0.1149, 0.1467, 0.04424},
       {1.573, 0.4063, 0.1449, 0.9185, 0.05733, 0.01924, 0.2646},
       {1.589, 0.6137, 0.05638, 0.1508, 0.0103, 0.014, 0.3892},
       {0.3937, 0.6043, 0.05629, 0.8883, 0.006654, 0.01911, 0.246}},
      {{1.224, 0.4222, 0, 1.345, 0.1882, 0.1226, 0.7086},
       {1.066, 0.5427, 0.2023, 1.301, 0.008051, 0, 0.4046},
       {1.315, 0.6995, 0.06791, 0.5475, 0.002905, 0.06309, 0.3164},
       {0, 0.6839, 0.04491, 1.958, 0.01528, 0, 0}}}},
    {"between_narrow_dynamic",
     {192, 128},
     0,
     Tiles::kEven,
     {{{4.419, 0.3592, 0, 0.24, 0.1908, 0.2415, 0},
       {3.93, 0.339, 0.09996, 0.4003, 0.077, 0.2497, 0.09414},
       {4.579, 0.5912, 0.02847, 0, 0.02604, 0.02335, 0},
       {2.759, 0.5664, 0.06459, 0.001875, 0.01545, 0.107, 0}},
      {{5.337, 0.2223, 0.05549, 0.1753, 0.2798, 0.2826, 0.4798},
       {4.702, 0.4696, 0.1666, 0, 0.03504, 0.1702, 0.415},
       {3.507, 0.6528, 0.05348, 0, 0.01903, 0.0497, 0},
       {5.023, 0.7052, 0.01138, 0, 0.01848, 0.004808, 0.05458}}}},
    {"between_wide",
     {192, 128},
     0,
     Tiles::kEven,
     {{{1.209, 0.6121, 0, 0.874, 0, 0.1582, 0.4231},
       {2.422, 0.2471, 0.3143, 1.114, 0.05782, 0.04416, 0.3187},
       {2.971, 0.6094, 0.04155, 1.5, 0.002449, 0, 0.2164},
       {1.708, 0.565, 0.02744, 0.7327, 0.01681, 0.001809, 0.6087}},
      {{1.54, 0.5427, 0.3057, 1.716, 0, 0.001022, 0},
       {1.499, 0.5517, 0.1634, 2.157, 0, 0.02864, 0.3502},
       {2.885, 0.5762, 0.1094, 0, 0.002319, 0.08367, 1.459},
       {0.1586, 0.6004, 0.05805, 2.575, 0.01438, 0.0005828, 0.4317}}}},
    {"wgmma_persistent",
     {256, 192},
     0,
     Tiles::kWalk,
     {{{2.855, 0.4639, 0.04196, 0.2603, 0.1468, 0.2436, 0},
       {3.347, 0.6459, 0.01732, 0, 0.06848, 0.07381, 0},
       {3.535, 0.768, 0.03226, 0, 0.01961, 0.01353, 0},
       {2.55, 0.7793, 0, 0, 0.01885, 0.03628, 0}},
      {{1.957, 0.1785, 0, 1.008, 0.2203, 0.7792, 0.7487},
       {4.332, 0.3185, 0.2523, 0.343, 0.2231, 0, 0},
       {1.937, 0.8721, 0.1066, 0, 0.007616, 0.0262, 0.01858},
       {2.952, 0.6988, 0.07583, 0, 0.07928, 0.02039, 0}}}},
    {"wgmma_key_groups_2",
     {128, 64},
     0,
     Tiles::kFree,
     {{{1.192, 0.5079, 0.00161, 1.138, 0.05975, 0.05855, 0.2131},
       {0.9111, 0.3463, 0.1183, 1.919, 0.001437, 0.02318, 0.189},
       {1.362, 0.4082, 0.02675, 1.475, 0.003432, 0.0005891, 0.5119},
       {0.9224, 0.3845, 0.03645, 1.903, 0.006977, 0, 0.5224}},
      {{1.366, 0.195, 0.2137, 1.999, 0, 0.01147, 0.2327},
       {0, 0.1326, 0.2216, 2.77, 0.0118, 0.1674, 0.4109},
       {1.232, 0.3223, 0.1136, 0.9645, 0.003943, 0, 0.7332},
       {0, 0.383, 0.03276, 1.086, 0.02787, 0, 1.762}}}},
    {"wgmma_key_groups_4",
     {64, 0},
     0,
     Tiles::kFree,
     {{{1.296, 0.1059, 0.1086, 2.383, 0, 0.07452, 0.09179},
       {1.003, 0.1204, 0.1406, 2.351, 0, 0, 0.2634},
       {0.512, 0.2164, 0.03347, 2.805, 7.222e-05, 0, 0},
       {0.7523, 0.1755, 0.05528, 1.329, 0.01844, 0.04465, 1.848}},
      {{0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0}}}},
    {"cluster_keys",
     {64, 0},
     512,
     Tiles::kPairs2,
     {{{1.668, 0, 0, 1.378, 0.6881, 0, 0.01817},
       {0.8122, 0.005307, 0, 2.085, 0.8228, 0.09021, 0},
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
     {{{1.17, 0, 0, 2.914, 0.4506, 0, 0.01164},
       {0.8104, 0.222, 0.01872, 2.677, 0.1948, 0, 0},
       {0.2353, 0.2343, 0.01147, 3.261, 0.01148, 0, 0},
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
      {{0.8871, 0, 0.2047, 2.249, 0.08547, 0, 0},
       {0.3128, 0.3153, 0.001215, 2.249, 0, 0, 0},
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
  const int kind = s.S <= 256 ? 0 : s.S <= 768 ? 1 : 2 + causal;
  const double* factors = cost.us[s.D / 128][kind];
  const std::int64_t rows = cost.rows[s.D / 128];
  const bool is_near = std::any_of(factors, factors + 7, [](double us) { return us > 0; });
  if (!is_near || !rows || (cost.most_keys && s.S > cost.most_keys)) return 1e300;
  const std::int64_t heads = s.B * s.H;
  const double keys = static_cast<double>((s.S + 63) / 64), each = keys * static_cast<double>(heads) / 132;
  double terms[] = {1, 0, 0, 0, each * (causal ? (keys + 1) / 2 : keys), keys, each};
  if (cost.tiles == Tiles::kPairs1 || cost.tiles == Tiles::kPairs2) {
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
