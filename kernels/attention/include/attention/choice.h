// Which variant where on an H100 or H200 (132 SMs): by make_choice.py, from 2243 points of the map.
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
     {{{1.107, 0.6574, 0, 0.6481, 0.14, 0.07043, 0, 0.006392},
       {1.543, 0.7425, 0.06754, 0.2928, 0.02992, 0.002556, 0, 0.009484},
       {0.3167, 0.8046, 0.04322, 1.193, 0.0007697, 0, 0.175, 0.003288},
       {0, 0.8182, 0.01393, 0.1227, 0.001735, 0.007066, 0.273, 0.004396}},
      {{0.8795, 0.518, 0, 0.7414, 0.1508, 0.3063, 0.6153, 0.1522},
       {1.41, 0.5827, 0.09407, 1.301, 0.07943, 0.008528, 0.2883, 0.03338},
       {0, 0.8356, 0.1053, 0, 0.009128, 0.005603, 0.3988, 0.007499},
       {0, 0.8351, 0.07877, 0.735, 0.01652, 0.02531, 0, 0.0005863}}}},
    {"between_even_dynamic",
     {256, 192},
     {1, 1},
     0,
     Tiles::kEven,
     {{{4.683, 0.4824, 0, 0.1571, 0.1371, 0.2751, 0, 0},
       {4.574, 0.6478, 0, 0, 0.04724, 0.143, 0, 0.0108},
       {3.8, 0.8217, 0.01407, 0.06183, 0.006583, 0.002969, 0, 0.002259},
       {5.15, 0.6922, 0.03595, 0, 0.02436, 0.1029, 0, 0.01474}},
      {{4.468, 0.3455, 0, 0.5055, 0.2767, 0.509, 0.2532, 0.1593},
       {5.905, 0.4357, 0.1085, 0.6412, 0.1429, 0.04079, 0.09281, 0.03347},
       {3.786, 0.8559, 0.0865, 0, 0.00925, 0.004466, 0.02525, 0.00676},
       {1.731, 0.695, 0.08725, 0, 0.05059, 0.2008, 0, 0.02739}}}},
    {"between_narrow",
     {192, 128},
     {1, 1},
     0,
     Tiles::kEven,
     {{{1.021, 0.5062, 0.005251, 0.337, 0.1378, 0.2245, 0.1472, 0.005087},
       {0.9163, 0.4926, 0.08991, 0.5839, 0.02503, 0.08084, 0.2143, 0.01409},
       {1.073, 0.6137, 0.05336, 0.1447, 0.00528, 0.01359, 0.3419, 0.001583},
       {0, 0.6255, 0.02213, 0.4054, 0.005749, 0.01095, 0.3562, 0.003407}},
      {{1.315, 0.4327, 0, 0.8509, 0.1401, 0.1318, 0.753, 0.11},
       {1.307, 0.5782, 0.1446, 0.5459, 0, 0.004061, 0.3844, 0.02454},
       {0, 0.6686, 0.06499, 0, 0.004526, 0.07986, 0.5823, 0.008547},
       {0, 0.6676, 0.05954, 0.7387, 0.001544, 0.03643, 0.2861, 0.004589}}}},
    {"between_narrow_dynamic",
     {192, 128},
     {1, 1},
     0,
     Tiles::kEven,
     {{{4.198, 0.3423, 0, 0.1512, 0.1758, 0.3447, 0, 0},
       {4.307, 0.3901, 0.07956, 0.02337, 0.06397, 0.1505, 0.02544, 0.007337},
       {3.965, 0.6028, 0.0204, 0, 0.01829, 0.02539, 0, 0.002494},
       {4.604, 0.5145, 0.0421, 0, 0.03502, 0.08015, 0, 0.008705}},
      {{4.724, 0.2476, 0.05522, 0.2186, 0.1391, 0.4006, 0.5046, 0.1496},
       {5.227, 0.4821, 0.1366, 0, 0.02867, 0, 0.1077, 0.0257},
       {2.669, 0.6414, 0.04113, 0, 0.01677, 0.03382, 0, 0.01004},
       {2.201, 0.6187, 0.05238, 0, 0.01475, 0.1332, 0.02929, 0.01745}}}},
    {"between_wide",
     {192, 128},
     {1, 1},
     0,
     Tiles::kEven,
     {{{1.194, 0.483, 0, 0.8539, 0.005619, 0.2587, 0.5212, 0.01042},
       {0.3089, 0.3602, 0.1334, 1.591, 0.04236, 0.2427, 0.2232, 0.01905},
       {1.931, 0.5765, 0.0437, 1.102, 0.006012, 0.0122, 0.4487, 0.001557},
       {0.9747, 0.5825, 0.02036, 1.077, 0.009261, 0.001932, 0.3881, 0.003964}},
      {{1.685, 0.434, 0.2449, 1.71, 0, 0, 0, 0.1421},
       {1.871, 0.4994, 0.1618, 1.927, 0, 0, 0.1864, 0.03919},
       {1.135, 0.5609, 0.09605, 0, 0.004796, 0.1117, 1.429, 0.003847},
       {0, 0.6081, 0.04318, 1.817, 0.005139, 0.03664, 0.5769, 0.004835}}}},
    {"between_wide_dynamic",
     {0, 128},
     {1, 1},
     0,
     Tiles::kEven,
     {{{0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}},
      {{4.588, 0.346, 0.2119, 0.3196, 0, 0, 0.1525, 0.2053},
       {5.824, 0.3966, 0.1797, 0.7304, 0, 0, 0, 0.06111},
       {0, 0.5969, 0.05126, 0, 0.001214, 0.09188, 0.7391, 0.01496},
       {4.438, 0.6066, 0.04033, 0, 0.006264, 0.05919, 0.1502, 0.02708}}}},
    {"short_in_step",
     {64, 64},
     {5, 3},
     0,
     Tiles::kFree,
     {{{1.967, 0.06948, 0.06876, 0.08111, 0.09983, 0.3788, 2.229e-05, 0.001773},
       {0.5981, 0.09177, 0.003163, 0.2468, 0.1366, 0.3966, 0, 0.01271},
       {0, 0.2675, 0.004923, 0.09053, 0.01413, 0.1734, 0, 0.007199},
       {0, 0.1678, 0.001875, 0.3696, 0.05068, 0.09146, 0, 0.01579}},
      {{1.777, 0.1084, 0.1319, 0.1312, 0.1575, 0.4611, 0, 0.07813},
       {0.5424, 0.2033, 0.03383, 0.3708, 0.04373, 0.3268, 0, 0.04695},
       {0, 0.4065, 0.00709, 0.008771, 0.04238, 0.1966, 0, 0.006766},
       {0, 0.3259, 0, 0.2542, 0.03417, 0.2606, 0, 0.04513}}}},
    {"short_overlap",
     {64, 64},
     {3, 2},
     0,
     Tiles::kFree,
     {{{1.643, 0.05509, 0.08267, 0.3298, 0, 0.04816, 0.1242, 0.01894},
       {1.054, 0.08264, 0.04913, 0.2006, 0, 0.1521, 0.5506, 0.02225},
       {0.9713, 0.2096, 0.006654, 0.06663, 0, 0.07113, 0.2677, 0.001834},
       {0, 0.1605, 0, 0.2195, 0, 0.0442, 0.4537, 0.01856}},
      {{1.526, 0.02342, 0.1434, 0.3992, 0, 0, 0.5867, 0.148},
       {0.9437, 0.04532, 0.08425, 0.3747, 0, 0.05009, 1.257, 0.04782},
       {0.7918, 0.2544, 0.01035, 0.2481, 0, 0, 0.2822, 0.003208},
       {0, 0.2023, 0.001622, 0.3529, 0, 0, 1.018, 0.06083}}}},
    {"wgmma_persistent",
     {256, 192},
     {1, 1},
     0,
     Tiles::kWalk,
     {{{2.652, 0.4401, 0.005818, 0.2462, 0.1543, 0.2825, 0.007658, 0.01156},
       {3.192, 0.6161, 0.001854, 0, 0.0592, 0.09194, 0, 0.009055},
       {2.479, 0.7862, 0.02834, 0, 0.00973, 0.005648, 0, 0.002434},
       {2.047, 0.7638, 0, 0, 0.01626, 0.02458, 0, 0.007711}},
      {{1.67, 0.248, 0, 0.9447, 0.1522, 0.7522, 0.5553, 0.1913},
       {3.257, 0.5902, 0, 0.306, 0.1281, 0, 0.1062, 0.04386},
       {1.317, 0.8588, 0.08587, 0, 0.007904, 0.004314, 0, 0.006775},
       {1.786, 0.7229, 0.0429, 0, 0.06037, 0.06729, 0, 0.01747}}}},
    {"wgmma_key_groups_2",
     {128, 64},
     {1, 1},
     0,
     Tiles::kFree,
     {{{1.284, 0.4812, 0.0173, 0.7243, 0.07217, 0.09215, 0.1754, 0},
       {0.8081, 0.3268, 0.09113, 1.923, 0.000764, 0.05102, 0.1409, 0.01349},
       {0.6112, 0.4026, 0.02742, 1.858, 0, 0.001768, 0.3156, 0.002406},
       {0, 0.396, 0.01781, 1.697, 0.005307, 0, 0.5399, 0.004225}},
      {{1.432, 0.2209, 0.2148, 1.612, 0, 0, 0.0002746, 0.1138},
       {0.6548, 0.2315, 0.08544, 1.963, 0.01912, 0.04302, 0.9833, 0.04759},
       {0.4652, 0.324, 0.09565, 0.3048, 0.004679, 0, 1.241, 0.01107},
       {0, 0.3108, 0.08909, 2.505, 0, 0, 0.4152, 0.0579}}}},
    {"wgmma_key_groups_4",
     {64, 0},
     {1, 1},
     0,
     Tiles::kFree,
     {{{1.345, 0.1884, 0.08613, 1.859, 0, 0.03445, 0.05104, 0},
       {1.213, 0.1501, 0.08344, 2.104, 0.001236, 0.04005, 0.1032, 0.04488},
       {0, 0.2138, 0.02237, 1.808, 0.008057, 0.001378, 0.9779, 0.001861},
       {0.4065, 0.2118, 0.008048, 1.522, 0.01777, 0, 1.691, 0.01996}},
      {{0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}}}},
    {"cluster_keys",
     {64, 0},
     {2, 0},
     512,
     Tiles::kPairs,
     {{{1.804, 0, 0, 1.287, 0.7356, 0, 8.421e-15, 0},
       {1.537, 0.009132, 0, 1.479, 1.028, 0.07725, 0.03362, 0.009583},
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
     {{{1.393, 0, 0, 2.722, 0.4803, 0, 0.09166, 0},
       {1.297, 0.2426, 0, 2.064, 0.6789, 0, 0, 0.01885},
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
      {{0.994, 0.03985, 0.1409, 2.125, 0.245, 0, 0, 0.08111},
       {0.5211, 0.2845, 0, 1.762, 0.6503, 0, 0, 0},
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
