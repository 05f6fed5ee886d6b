// Which variant where on an H100 or H200 (132 SMs): by make_choice.py, from 1900 points of the map.
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
     {{{1.108, 0.6655, 0, 0.6308, 0.1391, 0.07023, 0, 0.003002},
       {1.427, 0.755, 0.05359, 0.3839, 0.02719, 0.001303, 0, 0.01154},
       {0.1163, 0.8021, 0.04525, 1.487, 0.0004818, 0.004799, 0.1056, 0.003877},
       {0, 0.8158, 0.01069, 0.152, 0.002796, 0.01913, 0.2594, 0.003505}},
      {{0.9058, 0.4997, 0, 0.7861, 0.1531, 0.3205, 0.6455, 0.1544},
       {1.484, 0.5708, 0.109, 1.191, 0.07579, 0.01728, 0.3502, 0.03339},
       {0, 0.8383, 0.105, 0, 0.009068, 0.01053, 0.428, 0.006609},
       {0, 0.8477, 0.06465, 0.7275, 0.01875, 0.02252, 0, 0}}}},
    {"between_even_dynamic",
     {256, 192},
     {1, 1},
     0,
     Tiles::kEven,
     {{{4.785, 0.4906, 0, 0.09872, 0.145, 0.2517, 0, 0},
       {4.85, 0.6489, 0, 0, 0.04693, 0.131, 0, 0.009941},
       {3.968, 0.8133, 0.0177, 0.09642, 0.007023, 0.01114, 0, 0.003309},
       {5.215, 0.6879, 0.03235, 0, 0.02619, 0.1061, 0, 0.01424}},
      {{4.43, 0.3357, 0, 0.5241, 0.2528, 0.5686, 0.335, 0.1541},
       {5.935, 0.4488, 0.08807, 0.6323, 0.1417, 0.05348, 0.1401, 0.03422},
       {3.355, 0.858, 0.08902, 0, 0.007966, 0.02658, 0.08017, 0.005704},
       {2.045, 0.703, 0.07589, 0, 0.05325, 0.1936, 0, 0.02645}}}},
    {"between_narrow",
     {192, 128},
     {1, 1},
     0,
     Tiles::kEven,
     {{{1.027, 0.505, 0.003677, 0.3516, 0.1345, 0.2337, 0.1576, 0.003988},
       {0.842, 0.4843, 0.09666, 0.6829, 0.02362, 0.091, 0.1934, 0.01534},
       {1.154, 0.6159, 0.0521, 0.1611, 0.004994, 0.01153, 0.3202, 0.002499},
       {0, 0.6251, 0.02676, 0.5304, 0.004246, 0.01928, 0.2886, 0.002903}},
      {{1.338, 0.4277, 0, 0.8513, 0.1417, 0.1386, 0.7694, 0.1149},
       {1.366, 0.5785, 0.1398, 0.6051, 0, 0, 0.3895, 0.02346},
       {0, 0.6805, 0.06573, 0, 0.003802, 0.08682, 0.4502, 0.006263},
       {0, 0.6733, 0.05618, 0.4893, 0.00219, 0.03822, 0.3874, 0.005998}}}},
    {"between_narrow_dynamic",
     {192, 128},
     {1, 1},
     0,
     Tiles::kEven,
     {{{4.19, 0.3657, 0, 0.06818, 0.1666, 0.3663, 0, 0},
       {4.368, 0.3989, 0.06993, 0.01347, 0.06367, 0.1517, 0.03411, 0.007208},
       {4.084, 0.6023, 0.02283, 0, 0.0168, 0.02728, 0, 0.004227},
       {3.87, 0.5241, 0.03691, 0, 0.03247, 0.1046, 0, 0.008243}},
      {{4.72, 0.2385, 0.04347, 0.2447, 0.1357, 0.4401, 0.5853, 0.1482},
       {5.277, 0.4795, 0.1442, 0, 0.02558, 0, 0.1089, 0.02778},
       {2.453, 0.6309, 0.04718, 0, 0.0218, 0.05447, 0, 0.00915},
       {2.367, 0.6218, 0.04745, 0, 0.01779, 0.1291, 0.02108, 0.01797}}}},
    {"between_wide",
     {192, 128},
     {1, 1},
     0,
     Tiles::kEven,
     {{{1.173, 0.4832, 0, 0.878, 0.00485, 0.2702, 0.525, 0.007532},
       {0.2063, 0.3545, 0.1325, 1.701, 0.04337, 0.2513, 0.2114, 0.01854},
       {2.042, 0.5779, 0.04254, 1.097, 0.005862, 0.0125, 0.4459, 0.001624},
       {0.9487, 0.5789, 0.0278, 1.379, 0.007463, 0.01351, 0.2615, 0.003169}},
      {{1.767, 0.4364, 0.2659, 1.584, 0, 0, 0, 0.1356},
       {1.893, 0.49, 0.1608, 2.052, 0, 0, 0.1981, 0.03675},
       {1.255, 0.5749, 0.08714, 0, 0.004563, 0.1095, 1.38, 0.002846},
       {0, 0.5998, 0.05265, 1.649, 0.00589, 0.03921, 0.6653, 0.003934}}}},
    {"short_in_step",
     {64, 64},
     {5, 3},
     0,
     Tiles::kFree,
     {{{2.004, 0.06891, 0.07581, 0.07268, 0.08078, 0.3884, 0, 0.002057},
       {0.6576, 0.09471, 0, 0.2398, 0.1378, 0.3766, 0, 0.01478},
       {0, 0.2574, 0.002274, 0.1484, 0.01211, 0.1054, 0, 0.01642},
       {0, 0.1371, 0.002062, 0.5179, 0.05014, 0, 0, 0.01503}},
      {{1.924, 0.08909, 0.1297, 0.136, 0.2343, 0.406, 0, 0.07248},
       {0.7192, 0.2187, 0.02285, 0.3756, 0.04288, 0.2566, 0, 0.03727},
       {0, 0.3847, 0.007957, 0.139, 0.01707, 0.3448, 0, 0.004163},
       {0, 0.3561, 0, 0.2413, 0.006022, 0.2239, 0, 0.05559}}}},
    {"short_overlap",
     {64, 64},
     {3, 2},
     0,
     Tiles::kFree,
     {{{1.629, 0.05386, 0.07803, 0.3349, 0, 0.05903, 0.1483, 0.01435},
       {0.9889, 0.08731, 0.04555, 0.1922, 0, 0.1662, 0.5685, 0.02296},
       {0.7405, 0.2186, 0.006817, 0.03931, 0, 0.07528, 0.2433, 0.003279},
       {0.3303, 0.1632, 0, 0.2127, 0, 0.05393, 0.3955, 0.01753}},
      {{1.553, 0.03053, 0.163, 0.3969, 0, 0, 0.4556, 0.137},
       {1.075, 0.06064, 0.09949, 0.3289, 0, 0.06645, 1.17, 0.04434},
       {0.6955, 0.2595, 0.01087, 0.2418, 0, 0.001291, 0.27, 0.004073},
       {0, 0.1948, 0.003336, 0.365, 0, 0, 0.9954, 0.06133}}}},
    {"wgmma_persistent",
     {256, 192},
     {1, 1},
     0,
     Tiles::kWalk,
     {{{2.654, 0.4494, 0, 0.229, 0.1604, 0.2815, 0.003542, 0.01049},
       {3.139, 0.6274, 0, 0, 0.05492, 0.08845, 0, 0.01022},
       {2.392, 0.7859, 0.02893, 0, 0.009106, 0.01034, 0, 0.003589},
       {2.017, 0.752, 0, 0, 0.01856, 0.04189, 0, 0.007977}},
      {{1.662, 0.2431, 0, 0.9444, 0.1284, 0.7756, 0.6172, 0.1968},
       {3.183, 0.5986, 0, 0.3302, 0.1237, 0.00921, 0.09526, 0.04775},
       {0.9598, 0.8624, 0.08954, 0, 0.006557, 0.02008, 0.02276, 0.005104},
       {1.808, 0.7353, 0.01919, 0, 0.06632, 0.06202, 0, 0.01681}}}},
    {"wgmma_key_groups_2",
     {128, 64},
     {1, 1},
     0,
     Tiles::kFree,
     {{{1.303, 0.4809, 0.02351, 0.7184, 0.0646, 0.09135, 0.176, 0},
       {0.8186, 0.3246, 0.08889, 1.987, 0.0009362, 0.0502, 0.1373, 0.01386},
       {0.6772, 0.402, 0.02721, 1.88, 0, 0.00207, 0.3058, 0.003336},
       {0.1379, 0.3975, 0.01601, 1.704, 0.005612, 0.004404, 0.5248, 0.003332}},
      {{1.468, 0.2274, 0.2204, 1.55, 0, 0, 0, 0.1128},
       {0.7675, 0.2273, 0.1014, 2.168, 0.01261, 0.008662, 0.7418, 0.0433},
       {0.4956, 0.3319, 0.09723, 0.3849, 0.001983, 0, 0.9895, 0.008788},
       {0, 0.3067, 0.09476, 2.589, 0, 0, 0.2882, 0.0594}}}},
    {"wgmma_key_groups_4",
     {64, 0},
     {1, 1},
     0,
     Tiles::kFree,
     {{{1.354, 0.1828, 0.08774, 1.899, 0, 0.02808, 0.04664, 0.008041},
       {1.234, 0.1606, 0.07153, 2.12, 0.001766, 0.03043, 0.1203, 0.04473},
       {0, 0.2171, 0.01999, 1.877, 0.007055, 0.002175, 0.9235, 0.002244},
       {0.5283, 0.2163, 0.005636, 1.52, 0.01651, 0, 1.635, 0.02162}},
      {{0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}}}},
    {"cluster_keys",
     {64, 0},
     {2, 0},
     512,
     Tiles::kPairs,
     {{{1.83, 0, 0, 1.277, 0.7432, 0, 6.248e-16, 0},
       {1.603, 0.01227, 0, 1.479, 1.027, 0.06231, 0.04264, 0.003606},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}},
      {{0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}}}},
    {"cluster_rows",
     {128, 0},
     {1, 1},
     1024,
     Tiles::kPairs,
     {{{1.422, 0, 0, 2.693, 0.526, 0, 0.08568, 0},
       {1.268, 0.2415, 0, 2.089, 0.7057, 0, 0, 0.01381},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}},
      {{0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}}}},
    {"cluster_wide_keys",
     {0, 64},
     {1, 1},
     512,
     Tiles::kPairs,
     {{{0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}},
      {{0.9845, 0.0218, 0.1648, 2.171, 0.2033, 0, 0, 0.06822},
       {0.5211, 0.2826, 0, 1.805, 0.6234, 0, 0, 0},
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
  const int kind = s.S <= 256 ? 0 : s.S <= 1024 || is_pair ? 1 : 2 + causal;
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
