// Which variant where on an H100 or H200 (132 SMs): by make_choice.py, from 1490 points of the map.
//
// The least predicted time decides.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <string_view>
#include <utility>
#include <vector>

// How tiles come to SMs: the next free block takes one, with groups of heads that are even or not; SMs go back and
// forth; or clusters of two share the keys of one.
enum class Tiles { kFree, kEven, kWalk, kPairs };

// A variant's rows per tile and blocks per SM at D = 64 and 128 (0: does not run), its most keys (0: no limit), and by
// D and class of shapes the factors, us, of: a launch; 64 keys of the fullest SM, with what tiles take beside them; the
// same of the mean SM; a tile of the fullest SM, or with several blocks per SM the keys of the fullest place for one;
// 64 keys of all rows per SM; 64 keys of the longest row; 64 rows per SM; 64 keys of all rows per SM over the heads
// that share K and V. Without factors it was never near the fastest.
struct Cost {
  std::string_view variant;
  std::int64_t rows[2], blocks[2], most_keys;
  Tiles tiles;
  double us[2][4][8];
};

inline constexpr Cost kCosts[] = {
    {"between_even",
     {256, 192},
     {1, 1},
     0,
     Tiles::kEven,
     {{{1.14, 0.665, 0, 0.6249, 0.1336, 0.0719, 0, 0.01026},
       {1.519, 0.7476, 0.06064, 0.206, 0.03939, 0, 0, 0.01158},
       {0.7732, 0.7996, 0.04951, 1.009, 0.0007657, 0.009944, 0.1629, 0.002909},
       {0.06515, 0.8279, 0.007817, 0.3196, 0.002226, 0.01626, 0.167, 0.002045}},
      {{1.005, 0.4911, 0.005472, 0.7532, 0.151, 0.3065, 0.6187, 0.2043},
       {1.291, 0.5293, 0.1252, 1.22, 0.08464, 0.06192, 0.4123, 0.03628},
       {0, 0.8267, 0.1088, 0, 0.01087, 0.03949, 0.3841, 0.006826},
       {0, 0.8406, 0.06331, 0.6901, 0.02304, 0.02356, 0, 0}}}},
    {"between_even_dynamic",
     {256, 192},
     {1, 1},
     0,
     Tiles::kEven,
     {{{4.815, 0.4928, 0, 0.06488, 0.1398, 0.2854, 0, 0},
       {4.789, 0.6285, 0, 0, 0.05457, 0.1681, 0, 0.01314},
       {4.68, 0.7861, 0.009475, 0, 0.01727, 0.02128, 0, 0.001781},
       {5.44, 0.659, 0.04665, 0, 0.03147, 0.1131, 0, 0.01264}},
      {{4.557, 0.3479, 0, 0.4097, 0.2344, 0.5248, 0.3516, 0.2064},
       {5.881, 0.3377, 0.1574, 0.7088, 0.1583, 0.1057, 0.2108, 0.03853},
       {3.609, 0.8372, 0.09567, 0, 0.01286, 0.05387, 0.004915, 0.005142},
       {3.324, 0.6589, 0.06585, 0, 0.07619, 0.1714, 0.01352, 0.02367}}}},
    {"between_narrow",
     {192, 128},
     {1, 1},
     0,
     Tiles::kEven,
     {{{1.055, 0.5067, 0.0008968, 0.3562, 0.1377, 0.2292, 0.1448, 0.002506},
       {0.6513, 0.4932, 0.101, 0.6211, 0.02236, 0.1156, 0.154, 0.02263},
       {1.199, 0.6164, 0.04423, 0.1965, 0.008141, 0.01827, 0.2525, 0.002887},
       {0, 0.6219, 0.04075, 0.7248, 0.002956, 0.01823, 0.1497, 0.001792}},
      {{1.406, 0.4108, 0, 0.8729, 0.132, 0.1299, 0.7814, 0.1635},
       {1.363, 0.5714, 0.1591, 0.4999, 0, 0.007546, 0.4105, 0.02562},
       {0.3982, 0.6835, 0.0655, 0.2474, 0.002077, 0.08711, 0.2929, 0.006977},
       {0.1035, 0.6901, 0.04792, 0.5314, 0.001895, 0.03223, 0.3523, 0.001462}}}},
    {"between_narrow_dynamic",
     {192, 128},
     {1, 1},
     0,
     Tiles::kEven,
     {{{4.305, 0.3556, 0, 0.08028, 0.1715, 0.3249, 0, 0},
       {3.914, 0.3964, 0.06419, 0.01547, 0.06613, 0.2333, 0.02345, 0.01335},
       {4.463, 0.5699, 0.005499, 0, 0.03475, 0.04125, 0, 0.00305},
       {3.295, 0.4984, 0.05601, 0, 0.0356, 0.1255, 0, 0.006802}},
      {{4.814, 0.2308, 0.04837, 0.2243, 0.1133, 0.409, 0.6063, 0.2008},
       {5.279, 0.4648, 0.1388, 0, 0.03862, 0.03436, 0.1367, 0.03005},
       {3.032, 0.6123, 0.04246, 0, 0.03291, 0.0576, 0, 0.01012},
       {4.088, 0.6125, 0.03044, 0, 0.03728, 0.08782, 0, 0.01264}}}},
    {"between_wide",
     {192, 128},
     {1, 1},
     0,
     Tiles::kEven,
     {{{1.133, 0.5094, 0, 0.8409, 0, 0.265, 0.4639, 0.002385},
       {0.08843, 0.377, 0.1427, 1.635, 0.04097, 0.2524, 0.1244, 0.02397},
       {3.115, 0.5687, 0.0451, 0, 0.009589, 0.01004, 0.7142, 0.002348},
       {0.7856, 0.5718, 0.03563, 1.267, 0.008796, 0.01882, 0.2647, 0.002001}},
      {{1.806, 0.4217, 0.2494, 1.669, 0, 0, 0, 0.1885},
       {1.901, 0.5277, 0.1676, 1.749, 0, 0, 0.1723, 0.03302},
       {2.191, 0.5599, 0.1145, 0, 5.333e-05, 0.1026, 1.183, 0.003014},
       {0.103, 0.6033, 0.05155, 1.476, 0.007146, 0.03774, 0.7325, 0.001031}}}},
    {"short_in_step",
     {64, 64},
     {5, 3},
     0,
     Tiles::kFree,
     {{{2.035, 0.07112, 0.07985, 0.124, 0.05421, 0.2392, 0, 0},
       {1.705, 0.1206, 7.619e-05, 0.145, 0.1099, 0.2275, 0, 0.03043},
       {0, 0.1789, 0.025, 0.2135, 0.03306, 0.2049, 0, 7.454e-05},
       {0, 0.1209, 0.007401, 0.3505, 0.07417, 0.1498, 0, 0.00902}},
      {{2.317, 0.05879, 0.1178, 0.1422, 0.3131, 0.2269, 0, 0.1787},
       {0.7731, 0.1871, 0.08452, 0.3689, 0, 0.2107, 0.008645, 0.06054},
       {0, 0.1851, 0.08105, 0.07982, 0.1617, 0.275, 0, 0.03179},
       {0.9403, 0.2587, 0, 0.5061, 0.009331, 0.1, 0, 0.06715}}}},
    {"short_overlap",
     {64, 64},
     {3, 2},
     0,
     Tiles::kFree,
     {{{1.819, 0.05514, 0.09265, 0.3181, 0, 0, 0.09418, 0.007183},
       {1.344, 0.1104, 0.02445, 0.1737, 0, 0.2007, 0.5257, 0.03247},
       {2.034, 0.1475, 0.04505, 0.1433, 0, 0.06948, 0.04293, 0},
       {1.301, 0.1729, 1.533e-05, 0.1964, 0, 0.0493, 0.2615, 0.005624}},
      {{1.572, 0.02976, 0.1542, 0.3956, 0, 0, 0.4924, 0.1957},
       {1.004, 0.036, 0.1426, 0.2754, 0, 0.132, 1.216, 0.06438},
       {1.755, 0.2754, 9.208e-05, 0.219, 0, 0, 0.2646, 0.01952},
       {0, 0.2318, 0, 0.3069, 0, 0, 0.848, 0.06516}}}},
    {"wgmma_persistent",
     {256, 192},
     {1, 1},
     0,
     Tiles::kWalk,
     {{{2.694, 0.45, 0, 0.2016, 0.1589, 0.2924, 0, 0.01529},
       {3.072, 0.598, 0.007771, 0, 0.06346, 0.1242, 0, 0.01559},
       {2.914, 0.739, 0.01827, 0, 0.02529, 0.03001, 0, 0.001603},
       {1.641, 0.7486, 0, 0, 0.02013, 0.05336, 0, 0.006052}},
      {{1.725, 0.2292, 0, 0.9494, 0.1065, 0.7754, 0.6514, 0.2559},
       {3.125, 0.5482, 0.04598, 0.305, 0.1362, 0.04272, 0.07157, 0.04884},
       {1.279, 0.8231, 0.09787, 0, 0.01633, 0.05183, 0, 0.005619},
       {2.178, 0.7148, 0, 0, 0.08323, 0.05656, 0, 0.01552}}}},
    {"wgmma_key_groups_2",
     {128, 64},
     {1, 1},
     0,
     Tiles::kFree,
     {{{1.314, 0.4914, 0.03241, 0.6903, 0.06351, 0.08563, 0.1201, 0},
       {0.6389, 0.3324, 0.09516, 1.896, 0, 0.07953, 0.09559, 0.01964},
       {1.086, 0.3998, 0.03136, 1.549, 0, 0.005387, 0.3951, 0.00311},
       {0.2116, 0.4066, 0.01841, 1.931, 0.002451, 0, 0.3184, 0.001897}},
      {{1.533, 0.2148, 0.2157, 1.564, 0, 0, 0, 0.1843},
       {0.5113, 0.2264, 0.09264, 2.156, 0.01809, 0.04549, 0.8213, 0.04776},
       {0.9034, 0.3286, 0.09508, 0.6147, 0.004054, 0, 0.8675, 0.01239},
       {0, 0.3273, 0.07719, 1.871, 0.003429, 0, 0.8392, 0.05288}}}},
    {"wgmma_key_groups_4",
     {64, 0},
     {1, 0},
     0,
     Tiles::kFree,
     {{{1.416, 0.1706, 0.08956, 1.978, 0, 0.006924, 0.009638, 0.01753},
       {1.141, 0.1693, 0.07255, 2.121, 0, 0.03402, 0.08209, 0.05068},
       {0.4946, 0.2218, 0.02295, 2.626, 0.0002741, 0, 0, 0.003682},
       {0.7674, 0.2223, 0.005006, 1.393, 0.01543, 0, 1.605, 0.01711}},
      {{0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}}}},
    {"cluster_keys",
     {64, 0},
     {2, 0},
     512,
     Tiles::kPairs,
     {{{1.846, 0, 0, 1.284, 0.731, 0, 0.004388, 0},
       {1.663, 0.03293, 0, 1.342, 1.018, 0.05249, 0.06231, 0.007589},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}},
      {{0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}}}},
    {"cluster_rows",
     {128, 0},
     {1, 0},
     1024,
     Tiles::kPairs,
     {{{1.42, 0, 0, 2.747, 0.4326, 0, 0.1252, 0},
       {1.25, 0.2605, 0, 2.036, 0.6694, 0, 0, 0.002143},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}},
      {{0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}}}},
    {"cluster_wide_keys",
     {0, 64},
     {0, 1},
     512,
     Tiles::kPairs,
     {{{0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}},
      {{0.9511, 0, 0.1787, 2.236, 0.1659, 0, 0, 0.07609},
       {0.4683, 0.3131, 0, 1.842, 0.4218, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}}}},
};

struct Load {
  double fullest, mean, waves;
};

template <typename Shape>
Load load_of(const Shape& s, bool causal, std::int64_t rows, Tiles order, std::int64_t places) {
  constexpr std::int64_t kMost = 64 * 132;
  const std::int64_t tiles = (s.S + rows - 1) / rows, keys = (s.S + 63) / 64, heads = s.B * s.H;
  const auto each = [&](std::int64_t i) {  // a last tile of fewer rows takes less time
    const auto seen = static_cast<double>(causal ? std::min(keys, ((i + 1) * rows + 63) / 64) : keys);
    const std::int64_t left = std::min(rows, (s.S - i * rows + 63) / 64 * 64);
    const double share = static_cast<double>(left) / static_cast<double>(rows);
    return seen * (0.75 + 0.25 * share) + 4;
  };
  const auto waves = static_cast<double>((tiles * heads + places - 1) / places);
  double mean = 0;
  for (std::int64_t i = 0; i < tiles; ++i) mean += each(i) * static_cast<double>(heads) / static_cast<double>(places);
  if (tiles * heads > kMost) return {mean, mean, waves};
  std::int64_t group = causal ? std::clamp<std::int64_t>((24 << 20) / (4 * s.S * s.D * s.HKV / s.H), 1, heads) : 1;
  if (order == Tiles::kEven) group = (heads + (heads + group - 1) / group - 1) / ((heads + group - 1) / group);
  using Sm = std::pair<double, double>;  // keys, tiles
  std::vector<Sm> walked(places);
  std::priority_queue<Sm, std::vector<Sm>, std::greater<Sm>> free{std::greater<Sm>(), std::vector<Sm>(places)};
  std::int64_t at = 0;
  for (std::int64_t first = 0; first < heads; first += group) {
    for (std::int64_t i = tiles; i-- > 0;) {
      for (std::int64_t head = first; head < std::min(first + group, heads); ++head, ++at) {
        if (order == Tiles::kWalk) {
          Sm& sm = walked[at / places % 2 ? places - 1 - at % places : at % places];
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
  const bool is_pair = cost.tiles == Tiles::kPairs;
  const int kind = s.S <= 256 ? 0 : s.S <= 768 || is_pair ? 1 : 2 + causal;
  const double* factors = cost.us[s.D / 128][kind];
  const std::int64_t rows = cost.rows[s.D / 128], fit = cost.blocks[s.D / 128] * 132;
  const bool is_near = std::any_of(factors, factors + 8, [](double us) { return us > 0; });
  if (!is_near || !rows || (cost.most_keys && s.S > cost.most_keys)) return 1e300;
  const std::int64_t heads = s.B * s.H;
  const double keys = static_cast<double>((s.S + 63) / 64), each = keys * static_cast<double>(heads) / 132;
  const double all = each * (causal ? (keys + 1) / 2 : keys);
  double terms[] = {1, 0, 0, 0, all, keys, each, all * static_cast<double>(s.HKV) / static_cast<double>(s.H)};
  if (is_pair) {
    const std::int64_t blocks = (s.S + rows - 1) / rows * heads * 2;
    const double waves = static_cast<double>((blocks + fit - 1) / fit), share = static_cast<double>(blocks) / 132;
    terms[1] = waves * keys;
    terms[2] = share * (causal ? (keys + static_cast<double>(rows) / 64) / 2 : keys);
    terms[3] = waves;
    terms[4] = share;
  } else {
    const Load load = load_of(s, causal, rows, cost.tiles, 132);
    terms[1] = load.fullest;
    terms[2] = load.mean;
    terms[3] = fit > 132 ? load_of(s, causal, rows, cost.tiles, fit).fullest : load.waves;
  }
  double us = 0;
  for (int i = 0; i < 8; ++i) us += factors[i] * terms[i];
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
