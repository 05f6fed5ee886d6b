// Which variant where on an H100 or H200 (132 SMs): by make_choice.py, from 1193 points of the map.
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
     {{{1.105, 0.6583, 0, 0.6716, 0.1319, 0.06925, 0, 0.02633},
       {1.603, 0.7416, 0.05186, 0.243, 0.04316, 0, 0, 0.01361},
       {0.8576, 0.7992, 0.05247, 0.9289, 0.0008516, 0.007148, 0.1643, 0.002846},
       {0.4145, 0.8175, 0.01621, 0.09904, 0.003323, 0.01249, 0.2148, 0.002455}},
      {{1.073, 0.499, 0, 0.7023, 0.1188, 0.2805, 0.6721, 0.232},
       {1.381, 0.5081, 0.1247, 1.07, 0.1002, 0.03741, 0.4991, 0.02885},
       {0, 0.8251, 0.1174, 0, 0.01058, 0.04758, 0.3448, 0.004593},
       {0, 0.841, 0.06393, 0.6985, 0.02379, 0.01874, 0, 0}}}},
    {"between_even_dynamic",
     {256, 192},
     0,
     Tiles::kEven,
     {{{4.862, 0.4766, 0, 0.09013, 0.1596, 0.227, 0, 0},
       {4.864, 0.6151, 0, 0, 0.05968, 0.1729, 0, 0.01556},
       {4.695, 0.7796, 0.008022, 0, 0.02, 0.02144, 0, 0.0016},
       {5.599, 0.6525, 0.0376, 0, 0.03654, 0.1076, 0, 0.01362}},
      {{4.668, 0.3744, 0, 0.3273, 0.2452, 0.451, 0.2784, 0.199},
       {5.724, 0.2569, 0.1876, 0.8024, 0.1816, 0.1469, 0.2622, 0.02924},
       {3.453, 0.8371, 0.09847, 0, 0.01362, 0.06314, 0, 0.002759},
       {3.213, 0.6496, 0.07581, 0, 0.07598, 0.1714, 0.01786, 0.02499}}}},
    {"between_narrow",
     {192, 128},
     0,
     Tiles::kEven,
     {{{0.9737, 0.5216, 0, 0.3635, 0.1475, 0.2322, 0.08393, 0.001724},
       {0.8089, 0.4913, 0.09359, 0.5835, 0.03049, 0.1078, 0.1435, 0.01878},
       {1.18, 0.6111, 0.04853, 0.1208, 0.009247, 0.02486, 0.263, 0.002722},
       {0, 0.6177, 0.04488, 0.6367, 0.002874, 0.0197, 0.1949, 0.002325}},
      {{1.449, 0.4161, 0, 0.878, 0.117, 0.1044, 0.7635, 0.178},
       {1.182, 0.5843, 0.1577, 0.5069, 0, 0, 0.3907, 0.01388},
       {0.1727, 0.6965, 0.05636, 0.3922, 0.0009685, 0.09517, 0.2265, 0.005527},
       {0.3641, 0.7201, 0.02522, 1.005, 0, 0.01466, 0.05825, 0.003414}}}},
    {"between_narrow_dynamic",
     {192, 128},
     0,
     Tiles::kEven,
     {{{4.307, 0.3313, 0, 0.1362, 0.1908, 0.3149, 0, 0},
       {3.968, 0.3867, 0.07344, 0, 0.07043, 0.2328, 0.004717, 0.01026},
       {4.471, 0.5575, 0.009768, 0, 0.03822, 0.04556, 0, 0.002784},
       {2.908, 0.5026, 0.0609, 0, 0.03248, 0.1265, 0, 0.007553}},
      {{5.071, 0.1882, 0, 0.3669, 0.1724, 0.3411, 0.722, 0.1622},
       {5.56, 0.4445, 0.1595, 0, 0.04555, 0, 0.1312, 0.0157},
       {2.902, 0.6137, 0.04555, 0, 0.03219, 0.06716, 0, 0.007918},
       {4.398, 0.6074, 0.02828, 0, 0.04088, 0.0827, 0, 0.01525}}}},
    {"between_wide",
     {192, 128},
     0,
     Tiles::kEven,
     {{{1.012, 0.5718, 0, 0.7231, 0, 0.2259, 0.3225, 0.0118},
       {0.2042, 0.3897, 0.157, 1.556, 0.04198, 0.2385, 0.05495, 0.01769},
       {3.108, 0.563, 0.05171, 0, 0.009561, 0.01643, 0.7025, 0.002652},
       {0.6819, 0.5738, 0.03025, 1.075, 0.01004, 0.02247, 0.3452, 0.002129}},
      {{1.779, 0.3979, 0.2303, 1.882, 0, 0, 0, 0.189},
       {1.807, 0.5674, 0.1495, 1.159, 0, 0, 0.4061, 0.01364},
       {2.15, 0.5707, 0.1042, 0, 0.0007696, 0.1004, 1.207, 0.0023},
       {0.4019, 0.6231, 0.04003, 1.88, 0.004439, 0.02416, 0.4763, 0.001979}}}},
    {"wgmma_persistent",
     {256, 192},
     0,
     Tiles::kWalk,
     {{{2.729, 0.4219, 0, 0.2906, 0.1748, 0.2725, 0.002091, 0.01125},
       {3.242, 0.589, 0.005143, 0, 0.06623, 0.1202, 0, 0.02046},
       {2.917, 0.7339, 0.01458, 0, 0.02808, 0.03172, 0, 0.001601},
       {1.549, 0.7408, 0, 0, 0.02276, 0.06024, 0, 0.006722}},
      {{1.819, 0.2084, 0.02953, 0.9361, 0.1009, 0.7827, 0.632, 0.241},
       {3.275, 0.4992, 0.08576, 0.05009, 0.1491, 0.04367, 0.1576, 0.03915},
       {1.2, 0.8169, 0.1038, 0, 0.01814, 0.06227, 0, 0.003702},
       {2.607, 0.707, 0, 0, 0.08684, 0.04487, 0, 0.01684}}}},
    {"wgmma_key_groups_2",
     {128, 64},
     0,
     Tiles::kFree,
     {{{1.194, 0.4988, 0.01532, 0.7727, 0.06679, 0.09969, 0.1056, 0},
       {0.7813, 0.3371, 0.09929, 1.825, 0, 0.06571, 0.08276, 0.01832},
       {1.14, 0.4026, 0.03042, 1.626, 0, 0.0001015, 0.3322, 0.002886},
       {0.1079, 0.4041, 0.02243, 2.006, 0.001676, 5.924e-05, 0.2877, 0.002624}},
      {{1.579, 0.2208, 0.2067, 1.542, 0, 0, 0.008065, 0.158},
       {0.4545, 0.276, 0.03547, 2.102, 0.02419, 0, 0.9997, 0.03722},
       {0.9256, 0.3353, 0.09089, 0.5664, 0.004194, 0, 0.875, 0.009198},
       {0, 0.306, 0.07934, 1.424, 0.02092, 0, 1.458, 0.05329}}}},
    {"wgmma_key_groups_4",
     {64, 0},
     0,
     Tiles::kFree,
     {{{1.316, 0.1688, 0.05892, 2.096, 0, 0.0227, 0.09815, 0.02439},
       {1.21, 0.1627, 0.07434, 2.139, 0.0001389, 0.0333, 0.08109, 0.06201},
       {0.6535, 0.2201, 0.02548, 2.601, 0.0002093, 0, 0, 0.003679},
       {0.6528, 0.2181, 0.004269, 1.229, 0.02015, 0, 1.834, 0.01893}},
      {{0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}}}},
    {"cluster_keys",
     {64, 0},
     512,
     Tiles::kPairs2,
     {{{1.792, 0, 0, 1.348, 0.698, 0, 0.008526, 0.003989},
       {1.713, 0.01454, 0, 1.501, 1.025, 0.04682, 0.05232, 0},
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
     {{{1.363, 0, 0, 2.828, 0.3667, 0, 0.1083, 0},
       {1.271, 0.2516, 0, 2.244, 0.4893, 0, 0, 0.02021},
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
      {{1.017, 0.006291, 0.1223, 2.19, 0.2546, 0, 1.155e-14, 0.1403},
       {0.314, 0.2953, 0, 2.292, 0.07552, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}}}},
};

struct Load {
  double fullest, mean, waves;
};

template <typename Shape>
Load load_of(const Shape& s, bool causal, std::int64_t rows, Tiles order) {
  constexpr std::int64_t kSms = 132, kMostWaves = 64;
  const std::int64_t tiles = (s.S + rows - 1) / rows, keys = (s.S + 63) / 64, heads = s.B * s.H;
  const auto each = [&](std::int64_t i) {  // a last tile of fewer rows takes less time
    const auto seen = static_cast<double>(causal ? std::min(keys, ((i + 1) * rows + 63) / 64) : keys);
    const std::int64_t left = std::min(rows, (s.S - i * rows + 63) / 64 * 64);
    const double share = static_cast<double>(left) / static_cast<double>(rows);
    return seen * (0.75 + 0.25 * share) + 4;
  };
  const auto waves = static_cast<double>((tiles * heads + kSms - 1) / kSms);
  double mean = 0;
  for (std::int64_t i = 0; i < tiles; ++i) mean += each(i) * static_cast<double>(heads) / kSms;
  if (tiles * heads > kMostWaves * kSms) return {mean, mean, waves};
  std::int64_t group = causal ? std::clamp<std::int64_t>((24 << 20) / (4 * s.S * s.D * s.HKV / s.H), 1, heads) : 1;
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
