// Which variant where on an H100 or H200 (132 SMs): by make_choice.py, from 2044 points of the map.
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
     {{{1.117, 0.6651, 0, 0.6292, 0.1397, 0.06677, 0, 0.002598},
       {1.443, 0.752, 0.05329, 0.3948, 0.02782, 0.001786, 0, 0.01168},
       {0.2547, 0.8048, 0.04193, 1.358, 0.0007288, 0.0005403, 0.1311, 0.003934},
       {0, 0.8117, 0.01354, 0.06256, 0.003221, 0.01338, 0.2832, 0.003966}},
      {{0.8614, 0.5181, 0, 0.7483, 0.153, 0.3253, 0.6208, 0.1438},
       {1.42, 0.5815, 0.09193, 1.323, 0.07955, 0.008398, 0.2895, 0.03224},
       {0, 0.8437, 0.09593, 0, 0.00887, 0.01114, 0.4094, 0.007133},
       {0, 0.8378, 0.07424, 0.6987, 0.01727, 0.02742, 0.02305, 0}}}},
    {"between_even_dynamic",
     {256, 192},
     {1, 1},
     0,
     Tiles::kEven,
     {{{4.813, 0.4878, 0, 0.106, 0.1473, 0.2384, 0, 0},
       {4.889, 0.6482, 0, 0, 0.04681, 0.1297, 0, 0.01015},
       {4.084, 0.8198, 0.01046, 0.06953, 0.007314, 0.002827, 0, 0.003417},
       {4.784, 0.689, 0.0378, 0, 0.02402, 0.1135, 0, 0.01479}},
      {{4.433, 0.3432, 0, 0.5222, 0.2758, 0.5554, 0.2916, 0.1373},
       {5.838, 0.4422, 0.09311, 0.7284, 0.143, 0.05486, 0.09427, 0.03376},
       {3.479, 0.8575, 0.08372, 0, 0.008509, 0.02749, 0.05839, 0.0062},
       {1.764, 0.7081, 0.07744, 0, 0.04942, 0.2064, 0, 0.02577}}}},
    {"between_narrow",
     {192, 128},
     {1, 1},
     0,
     Tiles::kEven,
     {{{1.045, 0.5026, 0.002297, 0.3593, 0.136, 0.2243, 0.1609, 0.005249},
       {0.8679, 0.4865, 0.09372, 0.6604, 0.02399, 0.08895, 0.1989, 0.0153},
       {1.109, 0.6151, 0.05253, 0.1632, 0.004996, 0.01343, 0.3161, 0.002342},
       {0, 0.6249, 0.02288, 0.3619, 0.005806, 0.01516, 0.3533, 0.003103}},
      {{1.311, 0.4337, 0, 0.8538, 0.1427, 0.1379, 0.7605, 0.1065},
       {1.322, 0.5835, 0.136, 0.5205, 0, 0.004724, 0.4137, 0.0226},
       {0, 0.6707, 0.06597, 0, 0.004144, 0.09172, 0.5149, 0.008357},
       {0, 0.6684, 0.05603, 0.4942, 0.003583, 0.04189, 0.4132, 0.004594}}}},
    {"between_narrow_dynamic",
     {192, 128},
     {1, 1},
     0,
     Tiles::kEven,
     {{{4.225, 0.3637, 0, 0.06859, 0.1699, 0.3494, 0, 0},
       {4.402, 0.397, 0.06976, 0.02343, 0.06413, 0.1507, 0.03365, 0.007343},
       {4.034, 0.6038, 0.0205, 0, 0.01708, 0.02783, 0, 0.004024},
       {4.104, 0.5177, 0.03877, 0, 0.03427, 0.1013, 0, 0.007991}},
      {{4.713, 0.2449, 0.04969, 0.2369, 0.1467, 0.4365, 0.5414, 0.1333},
       {5.303, 0.486, 0.1413, 0, 0.02356, 0, 0.08848, 0.02702},
       {2.476, 0.6358, 0.04277, 0, 0.01888, 0.05461, 0, 0.009919},
       {2.246, 0.6258, 0.04676, 0, 0.0147, 0.1358, 0.02514, 0.01673}}}},
    {"between_wide",
     {192, 128},
     {1, 1},
     0,
     Tiles::kEven,
     {{{1.173, 0.4818, 0, 0.8834, 0.006279, 0.2731, 0.5236, 0.005698},
       {0.2045, 0.354, 0.1313, 1.711, 0.04297, 0.2533, 0.2097, 0.01912},
       {1.848, 0.5801, 0.04188, 1.226, 0.005208, 0.01496, 0.4031, 0.001396},
       {0.9728, 0.579, 0.02472, 1.118, 0.008605, 0.008611, 0.3597, 0.003223}},
      {{1.716, 0.4433, 0.2538, 1.633, 0, 0, 0, 0.1317},
       {1.874, 0.5055, 0.1509, 1.857, 0, 0.003676, 0.2496, 0.03456},
       {1.318, 0.5705, 0.08375, 0, 0.005544, 0.1074, 1.425, 0.004246},
       {0, 0.6027, 0.04725, 1.722, 0.00578, 0.04368, 0.6487, 0.003208}}}},
    {"between_wide_dynamic",
     {0, 128},
     {1, 1},
     0,
     Tiles::kEven,
     {{{0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}},
      {{5.538, 0.3856, 0.1143, 0.1084, 0.06311, 0, 0.4942, 0},
       {5.879, 0.3465, 0.202, 0.8624, 0, 0.06102, 0, 0.07928},
       {0.9173, 0.5773, 0.05875, 0.4448, 0.001196, 0.1114, 0.7546, 0.01868},
       {5.542, 0.6365, 0.03051, 0, 0, 0.009119, 0.0718, 0.02791}}}},
    {"short_in_step",
     {64, 64},
     {5, 3},
     0,
     Tiles::kFree,
     {{{1.961, 0.0692, 0.07532, 0.07961, 0.07722, 0.3977, 0, 0.0003354},
       {0.6716, 0.09724, 0, 0.2421, 0.1322, 0.3707, 0, 0.01682},
       {0, 0.2602, 0.003721, 0.1115, 0.01502, 0.1427, 0, 0.01486},
       {0, 0.1397, 0.002061, 0.5004, 0.05085, 0.03229, 0, 0.0129}},
      {{1.83, 0.09923, 0.1307, 0.1434, 0.1938, 0.4187, 0, 0.07273},
       {0.6843, 0.1957, 0.03679, 0.3804, 0.04986, 0.2998, 0, 0.03693},
       {0, 0.3766, 0.02346, 0.05349, 0.03616, 0.3007, 0, 0.009473},
       {0, 0.3312, 0, 0.2711, 0.02523, 0.1507, 0, 0.0497}}}},
    {"short_overlap",
     {64, 64},
     {3, 2},
     0,
     Tiles::kFree,
     {{{1.627, 0.05413, 0.07778, 0.3362, 0, 0.05915, 0.1437, 0.01452},
       {1.092, 0.08389, 0.04696, 0.2001, 0, 0.1549, 0.5551, 0.02299},
       {0.8686, 0.2086, 0.006707, 0.06912, 0, 0.07224, 0.2355, 0.003041},
       {0.3146, 0.1618, 0, 0.2158, 0, 0.04639, 0.4098, 0.01826}},
      {{1.554, 0.02709, 0.1445, 0.3929, 0, 0, 0.5831, 0.148},
       {1.001, 0.04382, 0.08919, 0.3702, 0, 0.05455, 1.233, 0.04582},
       {0.8283, 0.2581, 0.008267, 0.2426, 0, 0.008693, 0.2673, 0.00506},
       {0, 0.1946, 0.002933, 0.3661, 0, 0, 1.069, 0.05919}}}},
    {"wgmma_persistent",
     {256, 192},
     {1, 1},
     0,
     Tiles::kWalk,
     {{{2.666, 0.4464, 0, 0.2394, 0.1614, 0.2756, 0.003699, 0.0113},
       {3.164, 0.6255, 0, 0, 0.05542, 0.08836, 0, 0.01018},
       {2.477, 0.7876, 0.02451, 0, 0.009703, 0.006959, 0, 0.003628},
       {1.88, 0.7572, 0, 0, 0.01735, 0.03546, 0, 0.007893}},
      {{1.647, 0.2489, 0, 0.9487, 0.1524, 0.7757, 0.5739, 0.1769},
       {3.255, 0.5834, 1.53e-05, 0.4484, 0.1297, 0, 0.068, 0.04306},
       {1.017, 0.8639, 0.08267, 0, 0.006873, 0.02017, 0.007001, 0.005843},
       {1.66, 0.7355, 0.03164, 0, 0.06036, 0.06856, 0, 0.01664}}}},
    {"wgmma_key_groups_2",
     {128, 64},
     {1, 1},
     0,
     Tiles::kFree,
     {{{1.307, 0.4817, 0.02284, 0.7152, 0.06432, 0.09083, 0.1758, 0},
       {0.8295, 0.3236, 0.09031, 1.974, 0.0006499, 0.05104, 0.1379, 0.01412},
       {0.6508, 0.4026, 0.02652, 1.92, 0, 0.001594, 0.2819, 0.003243},
       {0.03369, 0.399, 0.0142, 1.65, 0.005617, 0.003047, 0.5521, 0.003797}},
      {{1.44, 0.2173, 0.2202, 1.628, 0, 0, 0, 0.1086},
       {0.745, 0.2348, 0.08546, 1.986, 0.01754, 0.03002, 0.9335, 0.04508},
       {0.4303, 0.3346, 0.08927, 0.4487, 0.002483, 0, 1.016, 0.0101},
       {0, 0.3112, 0.0881, 2.496, 0, 0, 0.4625, 0.06039}}}},
    {"wgmma_key_groups_4",
     {64, 0},
     {1, 1},
     0,
     Tiles::kFree,
     {{{1.35, 0.1872, 0.08497, 1.876, 0, 0.03577, 0.05993, 0.001924},
       {1.16, 0.1582, 0.07244, 2.158, 0.001201, 0.03686, 0.1026, 0.04597},
       {0, 0.2156, 0.02098, 1.809, 0.007617, 0.003651, 0.9644, 0.001739},
       {0.4758, 0.2154, 0.006189, 1.491, 0.01688, 0, 1.659, 0.02165}},
      {{0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}}}},
    {"cluster_keys",
     {64, 0},
     {2, 0},
     512,
     Tiles::kPairs,
     {{{1.833, 0, 0, 1.277, 0.7423, 0, 5.622e-15, 0},
       {1.609, 0.01196, 0, 1.481, 1.026, 0.06147, 0.04251, 0.004105},
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
     {{{1.425, 0, 0, 2.694, 0.5231, 0, 0.08572, 0},
       {1.271, 0.2415, 0, 2.089, 0.7027, 0, 0, 0.014},
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
      {{0.9799, 0.02096, 0.1648, 2.182, 0.1996, 0, 0, 0.06196},
       {0.5517, 0.2904, 0, 1.743, 0.6249, 0, 0, 0},
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
