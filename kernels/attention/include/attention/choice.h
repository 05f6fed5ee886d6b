// Which variant where on an H100 or H200 (132 SMs): by make_choice.py, from 2638 points of the map.
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

// A variant's tiles at D = 64 and 128: rows (0: does not run), blocks per SM, the share of the keys' time that a tile
// of fewer rows takes anyway, and the time beside its keys, in that of 64 keys.
struct Tile {
  std::int64_t rows, blocks;
  double anyway, beside;
};

// A variant's tiles, keys per step, most keys (0: no limit), and by D and class of shapes the factors, us, of: a
// launch; 64 keys of the fullest SM, with what tiles take beside them; the same of the mean SM; a tile of the fullest
// SM, or with several blocks per SM the keys of the fullest place for one; 64 keys of all rows per SM; 64 keys of the
// longest row; 64 rows per SM; 64 keys of all rows per SM over the heads that share K and V; the share of places for
// blocks that have a tile. Without factors it was never near the fastest.
struct Cost {
  std::string_view variant;
  Tiles order;
  Tile tiles[2];
  std::int64_t step, most_keys;
  double us[2][5][9];
};

inline constexpr Cost kCosts[] = {
    {"between_even", Tiles::kEven, {{256, 1, 0.9, 4}, {192, 1, 0.55, 4}}, 64, 0,
     {{{0.9717, 0.7447, 0, 0.004956, 0.1379, 0.1241, 0.06005, 0.0271, 0},
       {1.196, 0.712, 0, 0.007263, 0.1146, 0, 0.08954, 0.02675, 0},
       {1.484, 0.7586, 0.02198, 0, 0.04412, 0, 0.04936, 0.006957, 0},
       {1.128, 0.7506, 0.03272, 1.454, 0.02036, 0, 0.0001766, 0.001982, 0},
       {1.372, 0.7716, 0.01102, 0.2257, 0.02073, 0, 0.07364, 0, 0}},
      {{0.9833, 0.662, 0, 0.06646, 0.1989, 0.2286, 0.522, 0.1472, 0},
       {0.9081, 0.651, 0, 0.2932, 0.1443, 0.1196, 0.5972, 0.134, 0},
       {1.295, 0.6293, 0.008477, 0.9678, 0.09615, 0, 0.531, 0.02838, 0},
       {0, 0.7042, 0.09092, 1.571, 0.06162, 0.01537, 0, 0.004367, 0.4843},
       {0.1248, 0.7089, 0.05761, 1.347, 0.06504, 0.05595, 0.03691, 0, 0}}}},
    {"between_even_dynamic", Tiles::kEven, {{256, 1, 1, 1}, {192, 1, 0.35, 4}}, 64, 0,
     {{{2.688, 0.7672, 0, 0.7745, 0.1245, 0.04543, 0.009135, 0.0767, 2.073},
       {3.476, 0.6753, 0, 0.9712, 0.08445, 0, 0, 0.02745, 1.751},
       {3.491, 0.7706, 0.00425, 0.9211, 0.03323, 0.06807, 0, 0.00559, 1.793},
       {3.845, 0.773, 0.03191, 1.807, 0.01725, 0.0003541, 0, 0.001671, 1.042},
       {0.09048, 0.7312, 0.05228, 0.646, 0.01997, 0.08413, 0.004372, 0.007715, 7.191}},
      {{1.881, 0.4674, 0, 0.04295, 0.1672, 0.7891, 0.1781, 0.2361, 2.227},
       {3.436, 0.4595, 0, 0, 0.17, 0.1147, 0.5111, 0.1655, 2.245},
       {3.879, 0.5025, 0.0239, 1.031, 0.1521, 0.05404, 0.006239, 0.02858, 1.791},
       {3.756, 0.5763, 0.09167, 1.35, 0.1039, 0.07246, 0, 0.004387, 0},
       {1.763, 0.4799, 0.1078, 0.6912, 0.1207, 0.2222, 0, 0.02073, 2.243}}}},
    {"between_narrow", Tiles::kEven, {{192, 1, 0.55, 4}, {128, 1, 0.75, 2.5}}, 64, 0,
     {{{0.9133, 0.5656, 0, 0, 0.1442, 0.295, 0.1993, 0.04219, 0},
       {1.105, 0.5514, 0, 0.135, 0.1019, 0.0652, 0.205, 0.02166, 0.1743},
       {0.969, 0.557, 0.008693, 0.292, 0.03806, 0.05333, 0.3397, 0.008702, 0},
       {0.8885, 0.589, 0.0284, 1.168, 0.02405, 0.01568, 0, 0.0001394, 0},
       {0.701, 0.587, 0.01026, 0.465, 0.02688, 0.0126, 0.2974, 0, 0}},
      {{1.183, 0.6205, 0.05562, 0.9677, 0.2017, 0.1519, 0.3436, 0.12, 0},
       {1.054, 0.5725, 0.0442, 1.222, 0.09418, 0.05246, 0.5961, 0.08575, 0},
       {1.165, 0.5771, 0.09536, 1.573, 0.02968, 0, 0.484, 0.02166, 0.05434},
       {0.3192, 0.6259, 0.06153, 1.816, 0.02588, 0.05395, 0.2807, 0.009405, 0.1722},
       {0, 0.5971, 0.06536, 1.744, 0.03277, 0.05584, 0.4091, 0, 0}}}},
    {"between_narrow_dynamic", Tiles::kEven, {{192, 1, 0.55, 1}, {128, 1, 0.9, 2.5}}, 64, 0,
     {{{2.068, 0.6096, 0, 0.8415, 0.09382, 0.2941, 0, 0.06184, 1.665},
       {2.488, 0.622, 0, 0.5199, 0.08016, 0.1523, 0.0818, 0.008286, 1.711},
       {2.639, 0.567, 0.06071, 0.9378, 0.01957, 0.1039, 0.03928, 0.005039, 1.827},
       {4.029, 0.6358, 0.02741, 1.378, 0.008574, 0.002022, 0, 0.001184, 0.3005},
       {0.9619, 0.5867, 0.05393, 0.3988, 0.01629, 0.04096, 0.127, 0.00215, 6.039}},
      {{2.983, 0.4469, 0.04968, 0.1236, 0.2698, 0.4405, 0.01318, 0.2518, 1.379},
       {3.39, 0.4738, 0, 0.252, 0.03142, 0.2278, 0.6638, 0.114, 0.9765},
       {4.14, 0.5007, 0.08518, 0.5668, 0.04833, 0, 0.3176, 0.01944, 1.044},
       {3.391, 0.573, 0.0737, 0.9145, 0.03608, 0.01512, 0, 0.007672, 0},
       {0.9086, 0.5113, 0.1058, 0.6765, 0.04608, 0.1265, 0.07998, 0.009411, 3.727}}}},
    {"between_wide", Tiles::kEven, {{192, 1, 0.35, 4}, {128, 1, 1, 7}}, 128, 0,
     {{{1.082, 0.5992, 0, 0.2329, 0, 0.2038, 0.4522, 0.04379, 0},
       {1.833, 0.5551, 0, 0.08298, 0.08967, 0, 0.3468, 0.02867, 0.01627},
       {0.8365, 0.5311, 0.00879, 0.2438, 0.04697, 0.124, 0.458, 0.01335, 0.2776},
       {2.011, 0.5833, 0.01998, 1.147, 0.01509, 0, 0.2618, 0.000295, 0.1038},
       {1.465, 0.5764, 0.01236, 0.5203, 0.01958, 0, 0.3874, 0, 0}},
      {{1.591, 0.4508, 0.007761, 0.03814, 0, 0.05275, 0.7514, 0.1453, 0},
       {0.8616, 0.4681, 0, 0.109, 0.06318, 0.1247, 0.7669, 0.1341, 0},
       {1.097, 0.5238, 0.07165, 0, 0.02155, 0.03821, 0.4842, 0.03358, 0},
       {1.59, 0.4925, 0.09219, 0.227, 0.04273, 0.09487, 0.3297, 0.002613, 0},
       {0, 0.5089, 0.06412, 0.7361, 0.04555, 0.05313, 0.3341, 0, 0}}}},
    {"between_wide_dynamic", Tiles::kEven, {{0, 1, 1, 4}, {128, 1, 1, 1}}, 128, 0,
     {{{0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0}},
      {{3.682, 0.5939, 0.04895, 0.8983, 0, 0.09638, 0.6451, 0.1893, 0},
       {3.816, 0.5351, 0.09519, 0.7808, 0.02875, 0.05535, 0.4929, 0.145, 0.1271},
       {4.165, 0.5184, 0.1047, 0.9737, 0, 0.04659, 0.587, 0.03854, 0.5666},
       {2.88, 0.5345, 0.1334, 0.8517, 0, 0.04941, 0.6914, 0.009163, 0},
       {2.447, 0.5221, 0.1254, 0, 0.004881, 0.113, 1.016, 0.01747, 2.846}}}},
    {"short_in_step", Tiles::kFree, {{64, 5, 1, 1}, {64, 4, 1, 1}}, 64, 0,
     {{{1.974, 0.1658, 0, 0.2633, 0, 0.1224, 0.2243, 0, 1.907},
       {1.529, 0.1856, 0.03189, 0.3028, 0, 0.2241, 0.2727, 0.01047, 0.7409},
       {1.412, 0.1835, 0.0507, 0.3056, 3.624e-05, 0.261, 0.1945, 0.008311, 0.3657},
       {0, 0.2121, 0.04786, 0.2778, 0, 0.07464, 0.2852, 0.001835, 5.943},
       {3.475, 0.2004, 0.03973, 0.3546, 0, 0.08015, 0.1521, 0.003519, 0}},
      {{1.65, 0.2266, 0.03906, 0.6132, 0, 0, 0.9059, 0.08473, 0},
       {1.088, 0.1937, 0.05307, 0.7471, 0.01675, 0, 0.9284, 0.1055, 0},
       {0.938, 0.1873, 0.06112, 0.7542, 0, 0.01896, 0.9498, 0.03212, 0.3942},
       {0.9702, 0.2044, 0.07518, 0.7175, 0, 0.06049, 0.8935, 0.008434, 0},
       {2.991, 0.2002, 0.06168, 0.8619, 0, 0, 0.5118, 0.01451, 0}}}},
    {"short_overlap", Tiles::kFree, {{64, 3, 1, 7}, {64, 2, 1, 7}}, 64, 0,
     {{{1.312, 0.04876, 0.04518, 0.2147, 0, 0.1068, 0.04311, 0.04426, 0.5102},
       {0.9717, 0.05194, 0.0414, 0.2175, 0.01688, 0.1671, 0.1131, 0.02724, 0.2223},
       {0.9464, 0.05928, 0.04803, 0.208, 0.03509, 0.1287, 0.03243, 0.01686, 0},
       {0.3709, 0.06467, 0.05174, 0.1853, 0.05831, 0.08477, 0, 0.002361, 0.2862},
       {1.183, 0.04879, 0.03931, 0.2735, 0.05818, 0.01187, 0, 0.01341, 0}},
      {{1.165, 0.06217, 0.1009, 0.2657, 0, 0.1176, 0.04798, 0.21, 0},
       {0.6036, 0.06858, 0.09407, 0.2922, 0, 0.08607, 0.1765, 0.1381, 0},
       {0.58, 0.05847, 0.1045, 0.3294, 0, 0.02225, 0.1901, 0.05137, 0},
       {0, 0.06689, 0.08871, 0.3516, 0.04187, 0.03058, 0, 0.009937, 0},
       {0, 0.06712, 0.09429, 0.3748, 0.03311, 0, 0, 0.06064, 0}}}},
    {"wgmma_persistent", Tiles::kWalk, {{256, 1, 1, 2.5}, {192, 1, 0.35, 4}}, 64, 0,
     {{{2.77, 0.6068, 0, 0, 0.2348, 0.1125, 0, 0.06395, 0.1443},
       {3.111, 0.6062, 0, 0, 0.1195, 0.01767, 0, 0.02744, 0.4967},
       {3.273, 0.6966, 0.0003244, 0, 0.05965, 0.05378, 0, 0.003306, 0.148},
       {3.598, 0.7091, 0.02205, 0.9299, 0.03389, 0.006943, 0, 0.001424, 0},
       {3.474, 0.7041, 0.009276, 0, 0.03789, 0, 0.04472, 0.002472, 0.7458}},
      {{1.397, 0.4886, 0, 0.03189, 0.2572, 0.6324, 0, 0.2026, 0.9522},
       {2.803, 0.4686, 0, 0, 0.1116, 0.1549, 0.6121, 0.1703, 0.2082},
       {3.018, 0.6217, 0, 0.0171, 0.116, 0, 0.2256, 0.03577, 0.2862},
       {2.166, 0.6092, 0.08418, 1.053, 0.09421, 0.05299, 0, 0.005249, 0},
       {2.052, 0.6525, 0.00798, 0.372, 0.1013, 0.06785, 0.006196, 0.01917, 0}}}},
    {"wgmma_key_groups_2", Tiles::kFree, {{128, 1, 0.75, 7}, {64, 1, 1, 4}}, 64, 0,
     {{{0.9896, 0.3618, 0.008098, 0.1102, 0.179, 0.3112, 0.1438, 0, 0},
       {1.081, 0.382, 0, 0.1626, 0.04254, 0.05576, 0.4012, 0.01278, 0},
       {0.9624, 0.3725, 0.03227, 0.379, 0.01708, 0.02084, 0.303, 0.006037, 0},
       {0.8448, 0.3766, 0.02205, 0.994, 0.01882, 0.004442, 0.07699, 0.0003807, 0},
       {0.5492, 0.3674, 0.01773, 0.6226, 0.0243, 0, 0.4064, 0, 0}},
      {{1.275, 0.2517, 0.1775, 1.575, 0, 0.06008, 0, 0.1602, 0},
       {0.7897, 0.2188, 0.1635, 1.834, 0, 0.1174, 0.242, 0.09095, 0},
       {0.8326, 0.2514, 0.1039, 1.853, 0, 0, 0.8403, 0.04417, 0},
       {0.7932, 0.2512, 0.1706, 1.581, 0, 0, 0, 0.01051, 0},
       {0, 0.261, 0.1414, 2.636, 0, 0, 0.223, 0.04951, 0}}}},
    {"wgmma_key_groups_4", Tiles::kFree, {{64, 1, 1, 7}, {0, 1, 1, 4}}, 64, 0,
     {{{1.215, 0.189, 0.05811, 1.223, 0, 0.06876, 0.08365, 0, 0},
       {0.968, 0.1832, 0.03764, 1.299, 0, 0.05441, 0.2786, 0.04742, 0.01707},
       {1.228, 0.1938, 0.05217, 1.214, 0, 0.01211, 0.1933, 0.03356, 0},
       {0.4296, 0.1958, 0.05156, 1.365, 0, 0.0003977, 0.4588, 0, 0},
       {0.09221, 0.2012, 0.04303, 1.585, 0, 0, 0.6377, 0.01123, 0}},
      {{0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0}}}},
    {"cluster_keys", Tiles::kPairs, {{64, 2, 1, 4}, {0, 1, 1, 4}}, 64, 512,
     {{{1.591, 0, 0.01335, 1.393, 0.5569, 0, 0.06889, 0.01534, 0.5013},
       {1.43, 0.009851, 0, 1.319, 0.5688, 0, 0.116, 0.01974, 0.5649},
       {1.663, 0.06914, 0, 1.401, 0.6685, 0, 0.3298, 0, 0.8054},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0}},
      {{0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0}}}},
    {"cluster_rows", Tiles::kPairs, {{128, 1, 1, 4}, {0, 1, 1, 4}}, 64, 1024,
     {{{1.308, 0.1074, 0.03704, 2.508, 0.5513, 0, 0.01468, 0.001309, 0},
       {1.162, 0.094, 0, 2.339, 0.4662, 0, 0, 0, 0.234},
       {1.263, 0.2471, 0, 2.105, 0.6062, 0, 0, 0.007875, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0}},
      {{0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0}}}},
    {"cluster_wide_keys", Tiles::kPairs, {{0, 1, 1, 4}, {64, 1, 1, 4}}, 64, 512,
     {{{0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0}},
      {{1.089, 0, 0, 2.056, 0.4161, 0, 0.142, 0, 0.01363},
       {0.8643, 0.1539, 0, 2.006, 0.4458, 0, 0.2749, 0.0713, 0},
       {0.6303, 0.2349, 0.006265, 2.009, 0.4254, 0, 0.2664, 0.01364, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0}}}},
};

struct Load {
  double fullest, mean, waves;
};

template <typename Shape>
Load load_of(const Cost& cost, const Shape& s, bool causal, std::int64_t places) {
  constexpr std::int64_t kMost = 64 * 132;
  const Tile& tile = cost.tiles[s.D / 128];
  const std::int64_t rows = tile.rows, tiles = (s.S + rows - 1) / rows, heads = s.B * s.H, step = cost.step;
  const auto each = [&](std::int64_t i) {  // a last tile of fewer rows takes less time
    const std::int64_t steps = ((causal ? std::min(s.S, (i + 1) * rows) : s.S) + step - 1) / step;
    const std::int64_t left = std::min(rows, (s.S - i * rows + 63) / 64 * 64);
    const double share = static_cast<double>(left) / static_cast<double>(rows);
    return static_cast<double>(steps * step / 64) * (tile.anyway + (1 - tile.anyway) * share) + tile.beside;
  };
  const auto waves = static_cast<double>((tiles * heads + places - 1) / places);
  double mean = 0;
  for (std::int64_t i = 0; i < tiles; ++i) mean += each(i) * static_cast<double>(heads) / static_cast<double>(places);
  if (tiles * heads > kMost) return {mean, mean, waves};
  std::int64_t group = causal ? std::clamp<std::int64_t>((24 << 20) / (4 * s.S * s.D * s.HKV / s.H), 1, heads) : 1;
  if (cost.order == Tiles::kEven) group = (heads + (heads + group - 1) / group - 1) / ((heads + group - 1) / group);
  using Sm = std::pair<double, double>;  // keys, tiles
  std::vector<Sm> walked(places);
  std::priority_queue<Sm, std::vector<Sm>, std::greater<Sm>> free{std::greater<Sm>(), std::vector<Sm>(places)};
  std::int64_t at = 0;
  for (std::int64_t first = 0; first < heads; first += group) {
    for (std::int64_t i = tiles; i-- > 0;) {
      for (std::int64_t head = first; head < std::min(first + group, heads); ++head, ++at) {
        if (cost.order == Tiles::kWalk) {
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
  const bool is_pair = cost.order == Tiles::kPairs;
  const int kind = s.S <= 128 ? 0 : s.S <= 256 ? 1 : s.S <= 1024 || is_pair ? 2 : 3 + causal;
  const double* factors = cost.us[s.D / 128][kind];
  const std::int64_t rows = cost.tiles[s.D / 128].rows, fit = cost.tiles[s.D / 128].blocks * 132;
  const bool is_near = std::any_of(factors, factors + 9, [](double us) { return us > 0; });
  if (!is_near || !rows || (cost.most_keys && s.S > cost.most_keys)) return 1e300;
  const std::int64_t heads = s.B * s.H;
  const double keys = static_cast<double>((s.S + 63) / 64), each = keys * static_cast<double>(heads) / 132;
  const double all = each * (causal ? (keys + 1) / 2 : keys);
  const double filled = std::min(1.0, static_cast<double>((s.S + rows - 1) / rows * heads) / static_cast<double>(fit));
  const double shared = all * static_cast<double>(s.HKV) / static_cast<double>(s.H);
  double terms[] = {1, 0, 0, 0, all, keys, each, shared, filled};
  if (is_pair) {
    const std::int64_t blocks = (s.S + rows - 1) / rows * heads * 2;
    const double waves = static_cast<double>((blocks + fit - 1) / fit), share = static_cast<double>(blocks) / 132;
    terms[1] = waves * keys;
    terms[2] = share * (causal ? (keys + static_cast<double>(rows) / 64) / 2 : keys);
    terms[3] = waves;
    terms[4] = share;
  } else {
    const Load load = load_of(cost, s, causal, 132);
    terms[1] = load.fullest;
    terms[2] = load.mean;
    terms[3] = fit > 132 ? load_of(cost, s, causal, fit).fullest : load.waves;
  }
  double us = 0;
  for (int i = 0; i < 9; ++i) us += factors[i] * terms[i];
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
