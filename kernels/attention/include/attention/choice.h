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
// mean SM; a tile of the fullest SM; 64 keys of all rows per SM; 64 keys of the longest row; 64 rows per SM; 64 keys of
// all rows per SM over the heads that share K and V. Without factors it was never near the fastest.
struct Cost {
  std::string_view variant;
  std::int64_t rows[2], most_keys;
  Tiles tiles;
  double us[2][4][8];
};

inline constexpr Cost kCosts[] = {
    {"between_even",
     {256, 192},
     0,
     Tiles::kEven,
     {{{1.168, 0.6576, 0, 0.4475, 0.1368, 0.07427, 0, 0.03807},
       {1.824, 0.6162, 0.09534, 0.3803, 0.06558, 0.03185, 0, 0.01656},
       {1.306, 0.7703, 0.05408, 0.1853, 0.007267, 0.02306, 0.3446, 0.004074},
       {0, 0.7753, 0.02347, 0.3371, 0.01326, 0.03156, 0.1381, 0.001686}},
      {{1.04, 0.4839, 0.004127, 0.7047, 0.1527, 0.3447, 0.5894, 0.1572},
       {1.514, 0.4064, 0.1875, 1.253, 0.09705, 0.07642, 0.5364, 0.02865},
       {0, 0.8279, 0.1105, 0, 0.01194, 0.03961, 0.3827, 0.005293},
       {0, 0.7918, 0.07837, 0.5756, 0.03705, 0.02103, 0, 0.000211}}}},
    {"between_even_dynamic",
     {256, 192},
     0,
     Tiles::kEven,
     {{{4.904, 0.4649, 0, 0.001098, 0.1742, 0.2252, 0, 0},
       {5.115, 0.5303, 0.008106, 0, 0.08607, 0.1736, 0, 0.01788},
       {4.764, 0.7341, 0.02947, 0, 0.02555, 0.04126, 0, 0.002743},
       {6.434, 0.6205, 0.01679, 0, 0.0523, 0.08437, 0, 0.01245}},
      {{4.676, 0.3675, 0, 0.3585, 0.3189, 0.464, 0.1411, 0.1394},
       {6.421, 0.2337, 0.2101, 0.74, 0.1816, 0.06039, 0.2711, 0.02013},
       {3.72, 0.8672, 0.05742, 0, 0.01775, 0.04883, 0, 0.003531},
       {1.355, 0.6775, 0.04169, 0, 0.07581, 0.2106, 0.02131, 0.02605}}}},
    {"between_narrow",
     {192, 128},
     0,
     Tiles::kEven,
     {{{0.9978, 0.4883, 0, 0.3693, 0.1607, 0.2615, 0.1152, 0.004964},
       {1.121, 0.3858, 0.1129, 1.03, 0.04922, 0.1114, 0.1373, 0.02235},
       {1.428, 0.5914, 0.06441, 0, 0.01059, 0.02476, 0.2975, 0.003019},
       {0, 0.5959, 0.05261, 0.6506, 0.008611, 0.02849, 0.1535, 0.00173}},
      {{1.503, 0.3775, 0, 1.009, 0.1807, 0.085, 0.7046, 0.1474},
       {0.7719, 0.5406, 0.1742, 0.6585, 0.009953, 0.06795, 0.3569, 0.01027},
       {0.7944, 0.695, 0.05445, 0.1264, 0.004126, 0.07678, 0.3575, 0.004601},
       {0.1652, 0.7078, 0.02933, 0.9819, 0.005181, 0.0248, 0, 0.00441}}}},
    {"between_narrow_dynamic",
     {192, 128},
     0,
     Tiles::kEven,
     {{{4.403, 0.2957, 0, 0.2226, 0.2108, 0.2858, 0, 0.02139},
       {4.483, 0.3087, 0.09799, 0.03988, 0.08091, 0.218, 0.08507, 0.01437},
       {4.44, 0.5446, 0.02548, 0, 0.03711, 0.04586, 0, 0.003174},
       {3.521, 0.4861, 0.04248, 0, 0.04634, 0.1033, 0, 0.008345}},
      {{5.19, 0.1632, 0.0006995, 0.4241, 0.2492, 0.3347, 0.637, 0.08605},
       {5.137, 0.4545, 0.115, 0, 0.05815, 0.03309, 0.2245, 0.009087},
       {3.057, 0.6096, 0.04937, 0, 0.03432, 0.05403, 0, 0.006963},
       {3.173, 0.6148, 0.01664, 0, 0.04406, 0.08703, 0, 0.01486}}}},
    {"between_wide",
     {192, 128},
     0,
     Tiles::kEven,
     {{{1.219, 0.505, 0, 0.6911, 0.007859, 0.2462, 0.4866, 0.005263},
       {1.539, 0.1472, 0.2308, 2.043, 0.05772, 0.2222, 0.2481, 0.02057},
       {3.047, 0.5558, 0.06103, 0, 0.008963, 0.01737, 0.691, 0.003111},
       {0.7811, 0.5489, 0.04837, 0.9898, 0.01328, 0.03086, 0.3337, 0.001182}},
      {{1.77, 0.4466, 0.2053, 1.697, 0, 0, 0, 0.1577},
       {1.677, 0.4997, 0.2205, 1.081, 0, 0.07245, 0.3264, 0.006252},
       {2.736, 0.5948, 0.07929, 0, 0.002638, 0.0643, 1.196, 0.002302},
       {0.0315, 0.6242, 0.03993, 1.83, 0.005613, 0.03112, 0.4548, 0.001731}}}},
    {"wgmma_persistent",
     {256, 192},
     0,
     Tiles::kWalk,
     {{{2.798, 0.3975, 0.01158, 0.1969, 0.1811, 0.2779, 0.04257, 0},
       {3.363, 0.5383, 0, 0, 0.08711, 0.1271, 0, 0.01927},
       {2.809, 0.7336, 0.02935, 0, 0.02415, 0.03203, 0, 0.002784},
       {1.183, 0.7044, 0, 0, 0.03321, 0.06761, 0, 0.007756}},
      {{1.802, 0.2044, 0.05949, 0.8934, 0.1812, 0.8106, 0.4519, 0.1701},
       {3.647, 0.3817, 0.1736, 0.09608, 0.1628, 0.05934, 0.1461, 0.02875},
       {1.166, 0.8519, 0.07494, 0, 0.01631, 0.05031, 0, 0.004424},
       {2.66, 0.6287, 0.02291, 0, 0.1082, 0.03793, 0, 0.02138}}}},
    {"wgmma_key_groups_2",
     {128, 64},
     0,
     Tiles::kFree,
     {{{1.258, 0.4491, 0, 0.8455, 0.08794, 0.1154, 0.2369, 0},
       {0.9539, 0.3013, 0.1285, 1.875, 0.0002461, 0.05025, 0.06942, 0.01572},
       {1.269, 0.3922, 0.03708, 1.314, 0.00159, 0.001685, 0.507, 0.004266},
       {0.9466, 0.3823, 0.03471, 1.363, 0.007713, 0, 0.5796, 0.002924}},
      {{1.616, 0.2383, 0.1993, 1.464, 0, 0, 0, 0.1283},
       {0.6078, 0.2725, 0.03193, 2.217, 0.0239, 0, 0.9337, 0.01225},
       {0.5564, 0.3503, 0.07798, 0.6776, 0.002749, 0, 0.7631, 0.005254},
       {0, 0.3251, 0.08427, 2.273, 0.002805, 0, 0.4316, 0.04203}}}},
    {"wgmma_key_groups_4",
     {64, 0},
     0,
     Tiles::kFree,
     {{{1.423, 0.1473, 0.08812, 2.06, 0, 0.01234, 0.07067, 0.02993},
       {0.8481, 0.1049, 0.06216, 2.746, 0, 0.08823, 0.2062, 0.03078},
       {1.136, 0.2226, 0.02118, 2.097, 0, 0, 0.5481, 0.005256},
       {1.094, 0.2095, 0.02215, 1.25, 0.01297, 0, 1.699, 0.01967}},
      {{0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}}}},
    {"cluster_keys",
     {64, 0},
     512,
     Tiles::kPairs2,
     {{{1.796, 0, 0, 1.294, 0.7346, 0, 0.008849, 0},
       {1.284, 0.000297, 0, 1.945, 0.9518, 0.05602, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}},
      {{0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}}}},
    {"cluster_rows",
     {128, 0},
     1024,
     Tiles::kPairs1,
     {{{1.377, 0, 0, 2.762, 0.3914, 0, 0.1543, 0},
       {1.217, 0.26, 0.007198, 2.127, 0.4641, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}},
      {{0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}}}},
    {"cluster_wide_keys",
     {0, 64},
     512,
     Tiles::kPairs1,
     {{{0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}},
      {{0.9754, 0.001837, 0.1279, 2.326, 0.1311, 0, 0, 0.1471},
       {0.5081, 0.2889, 0, 2.264, 0.08003, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}}}},
};

struct Load {
  double fullest, mean, waves;
};

template <typename Shape>
Load load_of(const Shape& s, bool causal, std::int64_t rows, Tiles order) {
  constexpr std::int64_t kSms = 132, kMostWaves = 64, kBeside = 4;
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
  const bool is_near = std::any_of(factors, factors + 8, [](double us) { return us > 0; });
  if (!is_near || !rows || (cost.most_keys && s.S > cost.most_keys)) return 1e300;
  const std::int64_t heads = s.B * s.H;
  const double keys = static_cast<double>((s.S + 63) / 64), each = keys * static_cast<double>(heads) / 132;
  const double all = each * (causal ? (keys + 1) / 2 : keys);
  double terms[] = {1, 0, 0, 0, all, keys, each, all * static_cast<double>(s.HKV) / static_cast<double>(s.H)};
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
