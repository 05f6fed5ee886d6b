// Which variant where on an H100 or H200 (132 SMs): by make_choice.py, from 1253 points of the map.
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
     {{{1.131, 0.6592, 0, 0.655, 0.1402, 0.06113, 0, 0.01298},
       {1.581, 0.7396, 0.05326, 0.2648, 0.04351, 0, 0, 0.01177},
       {0.8284, 0.799, 0.05187, 0.9272, 0.001091, 0.00652, 0.1652, 0.00275},
       {0.4395, 0.8171, 0.01573, 0.06846, 0.003435, 0.01091, 0.2248, 0.002602}},
      {{1.061, 0.4642, 0.004482, 0.8036, 0.115, 0.2848, 0.7077, 0.2735},
       {1.043, 0.528, 0.09225, 1.169, 0.09825, 0.07677, 0.5061, 0.03001},
       {0, 0.8191, 0.1237, 0, 0.01077, 0.04903, 0.3385, 0.004289},
       {0, 0.8403, 0.06537, 0.6981, 0.0233, 0.01883, 0, 0}}}},
    {"between_even_dynamic",
     {256, 192},
     0,
     Tiles::kEven,
     {{{4.799, 0.5052, 0, 0, 0.1411, 0.2719, 0, 0},
       {4.801, 0.6171, 0, 0, 0.05871, 0.1762, 0, 0.0151},
       {4.653, 0.779, 0.007082, 0, 0.02046, 0.02102, 0, 0.001469},
       {5.293, 0.6558, 0.03572, 0, 0.03584, 0.1171, 0, 0.01374}},
      {{4.738, 0.3393, 0, 0.3352, 0.2053, 0.437, 0.4311, 0.2804},
       {5.72, 0.2609, 0.1904, 0.7226, 0.1803, 0.1327, 0.2644, 0.03225},
       {3.371, 0.8379, 0.0948, 0, 0.01454, 0.06255, 0, 0.002971},
       {3.01, 0.6531, 0.07593, 0, 0.07451, 0.1741, 0.02115, 0.02451}}}},
    {"between_narrow",
     {192, 128},
     0,
     Tiles::kEven,
     {{{1.024, 0.5134, 0.009228, 0.335, 0.1404, 0.2284, 0.1115, 0.00145},
       {0.7498, 0.492, 0.09266, 0.5854, 0.03019, 0.1132, 0.1461, 0.01824},
       {1.143, 0.6119, 0.0479, 0.1222, 0.009155, 0.0244, 0.2632, 0.00252},
       {0, 0.617, 0.04611, 0.6512, 0.002644, 0.01797, 0.1862, 0.002555}},
      {{1.455, 0.4011, 0, 0.8783, 0.09874, 0.09825, 0.8393, 0.2193},
       {1.232, 0.5768, 0.1619, 0.4797, 0, 0, 0.4098, 0.01681},
       {0.1632, 0.6977, 0.05503, 0.3981, 0.001164, 0.0931, 0.2128, 0.005506},
       {0.2754, 0.7187, 0.02521, 1.003, 0, 0.01706, 0.07353, 0.003501}}}},
    {"between_narrow_dynamic",
     {192, 128},
     0,
     Tiles::kEven,
     {{{4.316, 0.3501, 0, 0.1038, 0.173, 0.3021, 0, 0.002968},
       {3.937, 0.3867, 0.0722, 0, 0.07054, 0.2329, 0.007628, 0.01005},
       {4.424, 0.5584, 0.008942, 0, 0.03809, 0.04546, 0, 0.002745},
       {2.945, 0.5011, 0.06145, 0, 0.03289, 0.1243, 0, 0.00763}},
      {{4.931, 0.2022, 0.03076, 0.2624, 0.1221, 0.3381, 0.6991, 0.2502},
       {5.531, 0.4346, 0.1669, 0, 0.04634, 0, 0.129, 0.01776},
       {2.863, 0.6101, 0.04683, 0, 0.03331, 0.06744, 0, 0.008114},
       {4.331, 0.6092, 0.02863, 0, 0.03955, 0.08308, 0, 0.01541}}}},
    {"between_wide",
     {192, 128},
     0,
     Tiles::kEven,
     {{{1.088, 0.5256, 0, 0.8209, 0, 0.245, 0.4364, 0.00264},
       {0.1827, 0.3897, 0.1518, 1.541, 0.04281, 0.2428, 0.07021, 0.01753},
       {3.066, 0.5625, 0.05282, 0, 0.009451, 0.01763, 0.6989, 0.002499},
       {0.6873, 0.5723, 0.03218, 1.077, 0.009949, 0.02116, 0.3423, 0.002276}},
      {{1.761, 0.3433, 0.2501, 2.074, 0, 0, 0, 0.2477},
       {1.896, 0.5426, 0.1693, 1.175, 0, 0, 0.3985, 0.0194},
       {2.153, 0.5719, 0.1036, 0, 0.0006344, 0.0977, 1.2, 0.002157},
       {0.3236, 0.6243, 0.03869, 1.879, 0.004394, 0.02527, 0.4815, 0.001661}}}},
    {"wgmma_persistent",
     {256, 192},
     0,
     Tiles::kWalk,
     {{{2.709, 0.4558, 0, 0.1694, 0.1613, 0.2653, 0, 0.01789},
       {3.199, 0.59, 0.006033, 0, 0.06566, 0.1237, 0, 0.01901},
       {2.907, 0.7331, 0.01504, 0, 0.02828, 0.03064, 0, 0.001424},
       {1.564, 0.7401, 0, 0, 0.02292, 0.05865, 0, 0.006775}},
      {{1.811, 0.2042, 0, 0.9693, 0.07936, 0.7369, 0.7646, 0.3096},
       {3.126, 0.5011, 0.07179, 0.1907, 0.1508, 0.0596, 0.1283, 0.04075},
       {1.192, 0.8144, 0.1044, 0, 0.01884, 0.06234, 0, 0.003552},
       {2.498, 0.7098, 0, 0, 0.08578, 0.04595, 0, 0.01654}}}},
    {"wgmma_key_groups_2",
     {128, 64},
     0,
     Tiles::kFree,
     {{{1.25, 0.5021, 0.03519, 0.696, 0.06412, 0.08101, 0.08398, 0},
       {0.7323, 0.3381, 0.09888, 1.818, 0, 0.06972, 0.0854, 0.01717},
       {1.12, 0.4021, 0.03087, 1.636, 0, 0, 0.3261, 0.002734},
       {0.08667, 0.4034, 0.02347, 2.01, 0.001422, 0, 0.2831, 0.00272}},
      {{1.538, 0.1947, 0.2089, 1.652, 0, 0, 0.02102, 0.2169},
       {0.4625, 0.2559, 0.05308, 2.146, 0.02415, 0.003969, 0.9763, 0.04153},
       {0.9573, 0.3324, 0.09258, 0.5071, 0.00481, 0, 0.9547, 0.01042},
       {0, 0.3062, 0.07846, 1.415, 0.02094, 0, 1.455, 0.05454}}}},
    {"wgmma_key_groups_4",
     {64, 0},
     0,
     Tiles::kFree,
     {{{1.346, 0.1779, 0.07813, 2.004, 0, 0.01297, 0.03978, 0.01405},
       {1.162, 0.1719, 0.06768, 2.124, 0.0007709, 0.02719, 0.1233, 0.05308},
       {0.6434, 0.2204, 0.02517, 2.591, 0.0002344, 0, 0, 0.003533},
       {0.6034, 0.2197, 0.002905, 1.233, 0.02004, 0.0008767, 1.813, 0.01923}},
      {{0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}}}},
    {"cluster_keys",
     {64, 0},
     512,
     Tiles::kPairs2,
     {{{1.804, 0, 0, 1.316, 0.7184, 0, 0.008681, 0},
       {1.656, 0.01765, 0, 1.483, 1.025, 0.05487, 0.04774, 0},
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
     {{{1.371, 0, 0, 2.795, 0.381, 0, 0.1386, 0},
       {1.235, 0.2504, 0, 2.304, 0.4546, 0, 0, 0.01607},
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
      {{0.9851, 0, 0.1306, 2.182, 0.2487, 0, 0, 0.1557},
       {0.2738, 0.2944, 0, 2.331, 0.0444, 0, 0, 0},
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
