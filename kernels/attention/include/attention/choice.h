// Which variant where on an H100 or H200 (132 SMs): by make_choice.py, from 1804 points of the map.
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
     {{{1.135, 0.6658, 0, 0.6243, 0.1401, 0.06066, 0, 0.002781},
       {1.447, 0.7567, 0.05857, 0.3328, 0.02772, 0, 0, 0.009682},
       {0, 0.8024, 0.04436, 1.598, 0.0003417, 0.008215, 0.08506, 0.003486},
       {0, 0.8148, 0.009904, 0.1665, 0.002765, 0.02119, 0.2569, 0.003395}},
      {{0.9202, 0.4886, 0, 0.8154, 0.1559, 0.3243, 0.6597, 0.1575},
       {1.576, 0.5674, 0.1114, 1.125, 0.0776, 0.01152, 0.3708, 0.03308},
       {0, 0.8467, 0.1035, 0, 0.007285, 0.01415, 0.4312, 0.004904},
       {0, 0.8448, 0.06834, 0.6738, 0.01889, 0.02655, 0, 0}}}},
    {"between_even_dynamic",
     {256, 192},
     {1, 1},
     0,
     Tiles::kEven,
     {{{4.83, 0.4895, 0, 0.09456, 0.1469, 0.2362, 0, 0},
       {4.833, 0.6489, 0, 0, 0.04767, 0.1353, 0, 0.008975},
       {3.908, 0.8148, 0.01695, 0.1067, 0.006888, 0.01276, 0, 0.002724},
       {5.485, 0.6838, 0.0355, 0, 0.02608, 0.1036, 0, 0.01441}},
      {{4.49, 0.3365, 0, 0.5052, 0.2552, 0.5524, 0.3349, 0.1555},
       {6.086, 0.4394, 0.09727, 0.6101, 0.143, 0.04446, 0.1399, 0.03456},
       {3.428, 0.865, 0.08921, 0, 0.006268, 0.0306, 0.07722, 0.003714},
       {2.363, 0.6933, 0.0741, 0, 0.05839, 0.1838, 0, 0.02586}}}},
    {"between_narrow",
     {192, 128},
     {1, 1},
     0,
     Tiles::kEven,
     {{{1.047, 0.5073, 0.001531, 0.3441, 0.1364, 0.2261, 0.1571, 0.003166},
       {0.8366, 0.4854, 0.09834, 0.6666, 0.02322, 0.09334, 0.1917, 0.01469},
       {1.206, 0.6142, 0.05385, 0.1488, 0.004868, 0.01162, 0.3207, 0.002696},
       {0, 0.6266, 0.02572, 0.5511, 0.004192, 0.01947, 0.275, 0.002605}},
      {{1.351, 0.4213, 0, 0.8686, 0.1436, 0.1357, 0.78, 0.1178},
       {1.37, 0.5789, 0.1403, 0.5888, 0, 0, 0.3946, 0.0237},
       {0, 0.6815, 0.06795, 0, 0.00369, 0.09478, 0.4141, 0.003963},
       {0.08311, 0.6775, 0.05761, 0.5697, 0.0009215, 0.03269, 0.3141, 0.005142}}}},
    {"between_narrow_dynamic",
     {192, 128},
     {1, 1},
     0,
     Tiles::kEven,
     {{{4.206, 0.3646, 0, 0.06811, 0.1669, 0.3653, 0, 0},
       {4.389, 0.3954, 0.07167, 0.01024, 0.06491, 0.1568, 0.03167, 0.007049},
       {4.138, 0.5996, 0.02454, 0, 0.01717, 0.02775, 0, 0.004103},
       {3.991, 0.5197, 0.0371, 0, 0.03404, 0.1042, 0, 0.007704}},
      {{4.756, 0.2356, 0.04568, 0.2363, 0.1368, 0.43, 0.5901, 0.1514},
       {5.324, 0.4782, 0.1436, 0, 0.02798, 0, 0.1048, 0.02761},
       {2.467, 0.6302, 0.04851, 0, 0.02254, 0.05948, 0, 0.006796},
       {2.727, 0.6202, 0.04871, 0, 0.01972, 0.1132, 0, 0.01726}}}},
    {"between_wide",
     {192, 128},
     {1, 1},
     0,
     Tiles::kEven,
     {{{1.181, 0.4846, 0, 0.8704, 0.004989, 0.2701, 0.5228, 0.007144},
       {0.1601, 0.345, 0.1415, 1.734, 0.04382, 0.2647, 0.2002, 0.01588},
       {2.119, 0.577, 0.04486, 1.068, 0.005356, 0.01127, 0.4466, 0.001957},
       {0.9544, 0.5789, 0.02684, 1.389, 0.007451, 0.01388, 0.2597, 0.003166}},
      {{1.776, 0.43, 0.271, 1.59, 0, 0, 0, 0.1405},
       {1.878, 0.4975, 0.1579, 2.038, 0, 0, 0.1862, 0.03615},
       {1.288, 0.5723, 0.09195, 0, 0.004635, 0.1149, 1.347, 0.0006516},
       {0, 0.6008, 0.05358, 1.682, 0.005697, 0.03803, 0.6383, 0.003326}}}},
    {"short_in_step",
     {64, 64},
     {5, 3},
     0,
     Tiles::kFree,
     {{{2.044, 0.07108, 0.07358, 0.06942, 0.08162, 0.3772, 0, 0.003675},
       {0.7629, 0.09569, 0.0004704, 0.2245, 0.1403, 0.3777, 0, 0.01233},
       {0, 0.2495, 0.00112, 0.1683, 0.01719, 0.09866, 0, 0.01622},
       {0, 0.1367, 0.001784, 0.5288, 0.04635, 0.0004185, 0, 0.01378}},
      {{1.954, 0.08142, 0.1328, 0.1402, 0.2472, 0.3913, 0, 0.07778},
       {0.4998, 0.2164, 0.03061, 0.3817, 0.03117, 0.2683, 0, 0.03894},
       {0, 0.4041, 0.0008358, 0.1382, 0.005954, 0.3462, 0, 0.007605},
       {2.062, 0.3688, 0, 0.2269, 0, 0.2009, 0, 0.0544}}}},
    {"short_overlap",
     {64, 64},
     {3, 2},
     0,
     Tiles::kFree,
     {{{1.68, 0.05479, 0.08083, 0.3227, 0, 0.06503, 0.134, 0.01805},
       {1.062, 0.09943, 0.03432, 0.1889, 0, 0.1584, 0.5626, 0.02444},
       {0.7391, 0.2139, 0.007084, 0.05421, 0, 0.07406, 0.2272, 0.002031},
       {0.4496, 0.1586, 0, 0.2265, 0, 0.04479, 0.3798, 0.01923}},
      {{1.572, 0.02894, 0.1616, 0.3925, 0, 0, 0.478, 0.1496},
       {1.223, 0.07564, 0.08808, 0.3169, 0, 0.04367, 1.2, 0.04697},
       {0.8262, 0.2579, 0.008992, 0.2523, 0, 0.004479, 0.2539, 0.00163},
       {0, 0.1862, 0.004975, 0.3729, 0, 0, 1.07, 0.06619}}}},
    {"wgmma_persistent",
     {256, 192},
     {1, 1},
     0,
     Tiles::kWalk,
     {{{2.695, 0.452, 0, 0.2083, 0.162, 0.2664, 0.001829, 0.01014},
       {3.133, 0.6237, 0.00113, 0, 0.05723, 0.09179, 0, 0.00854},
       {2.337, 0.7884, 0.02905, 0.003107, 0.008237, 0.01194, 0.0009197, 0.003275},
       {2.023, 0.751, 0, 0, 0.01832, 0.0442, 0, 0.007717}},
      {{1.687, 0.2384, 0, 0.9515, 0.1293, 0.7724, 0.6297, 0.197},
       {3.243, 0.5919, 0.0002478, 0.3341, 0.1263, 0.003701, 0.1038, 0.04875},
       {0.9888, 0.8629, 0.09396, 0, 0.005546, 0.02662, 0.0155, 0.003463},
       {1.897, 0.7357, 0.01006, 0, 0.07023, 0.05956, 0, 0.01666}}}},
    {"wgmma_key_groups_2",
     {128, 64},
     {1, 1},
     0,
     Tiles::kFree,
     {{{1.317, 0.4805, 0.02298, 0.7208, 0.06752, 0.09004, 0.1702, 0},
       {0.8299, 0.327, 0.08707, 1.939, 0.0008642, 0.05218, 0.1576, 0.014},
       {0.7182, 0.4014, 0.02747, 1.871, 0, 0.002085, 0.3026, 0.003619},
       {0.1995, 0.3988, 0.0154, 1.699, 0.005348, 0.003656, 0.5126, 0.003185}},
      {{1.477, 0.2237, 0.2222, 1.56, 0, 0, 0, 0.1154},
       {0.8007, 0.2273, 0.1019, 2.177, 0.01338, 0.004579, 0.731, 0.04421},
       {0.6181, 0.3337, 0.09798, 0.4314, 0.001583, 0, 0.879, 0.007113},
       {0, 0.3062, 0.09618, 2.645, 0, 0, 0.2069, 0.05881}}}},
    {"wgmma_key_groups_4",
     {64, 0},
     {1, 1},
     0,
     Tiles::kFree,
     {{{1.368, 0.1822, 0.08698, 1.916, 0, 0.02217, 0.03195, 0.01041},
       {1.207, 0.1589, 0.07392, 2.135, 0.001303, 0.03499, 0.1111, 0.04397},
       {0, 0.2171, 0.02022, 1.845, 0.006935, 0.002206, 0.9552, 0.002216},
       {0.5989, 0.2173, 0.004922, 1.48, 0.01636, 0, 1.642, 0.02131}},
      {{0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}}}},
    {"cluster_keys",
     {64, 0},
     {2, 0},
     512,
     Tiles::kPairs,
     {{{1.835, 0, 0, 1.282, 0.7405, 0, 0, 0},
       {1.597, 0.01196, 0, 1.489, 1.024, 0.06231, 0.0426, 0.006841},
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
     {{{1.423, 0, 0, 2.712, 0.5026, 0, 0.09237, 0},
       {1.262, 0.2427, 0, 2.11, 0.6838, 0, 0, 0.01299},
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
      {{0.97, 0.02575, 0.1603, 2.176, 0.2065, 0, 1.464e-15, 0.06108},
       {0.498, 0.2875, 0, 1.894, 0.5183, 0, 2.464e-15, 0},
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
