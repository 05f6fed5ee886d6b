// Which variant where on an H100 or H200 (132 SMs): by make_choice.py, from 3032 points of the map.
//
// The least predicted time decides: a sum of factors times what the shape's work is, corrected by a tree.
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

// Two questions, whether a feature is at most a number; which is the second, the answer to the first tells. And the
// factors for yes and yes, yes and no, no and yes, no and no. The features are: keys, heads, causality, how full the
// fullest SM is beside the mean one, and how full the tiles are.
struct Tree {
  int features[3];
  double most[3], factors[4];
};

// A variant's tiles, keys per step, most keys (0: no limit), and by D and class of shapes the factors, us, of: a
// launch; 64 keys of the fullest SM, with what tiles take beside them; the same of the mean SM; a tile of the fullest
// SM, or with several blocks per SM the keys of the fullest place for one; 64 keys of all rows per SM; 64 keys of the
// longest row; 64 rows per SM; 64 keys of all rows per SM over the heads that share K and V; the share of places for
// blocks that have a tile. Without factors it was never near the fastest. By D, the tree that corrects the sum.
struct Cost {
  std::string_view variant;
  Tiles order;
  Tile tiles[2];
  std::int64_t step, most_keys;
  double us[2][5][9];
  Tree trees[2];
};

inline constexpr Cost kCosts[] = {
    {"between_even", Tiles::kEven, {{256, 1, 0.9, 4}, {192, 1, 0.55, 4}}, 64, 0,
     {{{1.058, 0.7441, 0, 0.02655, 0.1257, 0.09975, 0.06474, 0.01839, 0},
       {1.273, 0.6739, 0, 0.01812, 0.1238, 0, 0.06096, 0.02376, 0},
       {1.638, 0.7655, 0.02827, 0, 0.03597, 0, 0.03074, 0.004655, 0.02126},
       {0.9958, 0.7598, 0.03646, 1.444, 0.01785, 0, 0.01085, 0.001617, 0},
       {1.25, 0.7771, 0.01507, 0.3265, 0.01766, 0, 0.04717, 0, 0}},
      {{0.9431, 0.683, 0, 0.06325, 0.2171, 0.2445, 0.4626, 0.1602, 0},
       {0.7563, 0.6194, 0, 0.3465, 0.15, 0.1251, 0.5678, 0.1565, 0},
       {1.286, 0.6527, 0.02038, 0.9681, 0.07759, 0, 0.5301, 0.03798, 0},
       {0, 0.6984, 0.1031, 1.282, 0.06054, 0.01902, 0.1504, 0.006244, 0.3498},
       {0.3925, 0.7096, 0.06689, 1.747, 0.05734, 0.04761, 0.008614, 0, 0.009066}}},
     {{{0, 2, 3}, {672, 0.5, 1.3373}, {0.99913, 1.0113, 0.99564, 1.0109}},
      {{1, 3, 3}, {265, 3.4155, 1.1423}, {1.0045, 1.0157, 1.0056, 0.98866}}}},
    {"between_even_dynamic", Tiles::kEven, {{256, 1, 1, 1}, {192, 1, 0.35, 4}}, 64, 0,
     {{{2.759, 0.7707, 0, 0.882, 0.1041, 0.01486, 0, 0.06779, 1.901},
       {3.311, 0.6442, 0, 1.062, 0.08414, 0, 0, 0.04555, 1.822},
       {3.752, 0.7556, 0.0152, 0.7171, 0.03971, 0.07409, 0, 0.004831, 1.865},
       {3.656, 0.8176, 0.04764, 1.895, 0.0144, 0, 0, 0.001371, 1.147},
       {0, 0.7141, 0.06812, 0.8571, 0.01437, 0.1005, 0, 0.006991, 7.152}},
      {{1.558, 0.4817, 0, 0.1147, 0.1644, 0.8478, 0.1221, 0.2707, 2.081},
       {3.038, 0.4609, 0, 0.09758, 0.1869, 0.195, 0.4734, 0.1492, 2.038},
       {3.48, 0.5119, 0.0169, 1.049, 0.1384, 0.08578, 0.0163, 0.03447, 2.414},
       {3.329, 0.5973, 0.1012, 1.443, 0.09138, 0.1096, 0, 0.003961, 0},
       {1.347, 0.5179, 0.1081, 0.4895, 0.1071, 0.2248, 0, 0.02853, 2.592}}},
     {{{4, 3, 3}, {0.8625, 1.0975, 1.0017}, {1.0273, 1.0143, 1.0123, 1.0078}},
      {{3, 4, 2}, {1.2509, 0.91071, 0.5}, {0.98912, 0.98982, 1.0639, 1.0021}}}},
    {"between_narrow", Tiles::kEven, {{192, 1, 0.55, 4}, {128, 1, 0.75, 2.5}}, 64, 0,
     {{{0.953, 0.5709, 0, 0.01238, 0.1426, 0.2865, 0.1812, 0.03566, 0},
       {1.136, 0.5821, 0.00283, 0.1929, 0.0872, 0.07038, 0.1614, 0.02015, 0.1127},
       {0.9684, 0.5647, 0.01123, 0.306, 0.0313, 0.04987, 0.3278, 0.006732, 0},
       {0.6123, 0.5893, 0.03113, 1.01, 0.02093, 0.01819, 0.01995, 0, 0},
       {0.6294, 0.6055, 0.012, 0.5653, 0.0237, 0.01305, 0.2723, 0, 0}},
      {{1.174, 0.677, 0.05837, 0.9673, 0.2153, 0.1676, 0.2869, 0.1338, 0},
       {1.006, 0.5874, 0.07365, 1.284, 0.09797, 0.05086, 0.5055, 0.08294, 0},
       {1.184, 0.5937, 0.1034, 1.592, 0.0239, 0, 0.4408, 0.03362, 0.04074},
       {0, 0.6336, 0.06407, 1.823, 0.02217, 0.06528, 0.3937, 0.009869, 0.3237},
       {0, 0.6275, 0.07443, 1.477, 0.02882, 0.05556, 0.4055, 0, 0.1997}}},
     {{{3, 4, 1}, {6.8705, 0.94658, 7}, {0.99232, 1.0014, 0.98127, 0.99686}},
      {{1, 4, 3}, {269, 0.98113, 1.1258}, {1.0274, 0.99146, 0.99869, 0.98118}}}},
    {"between_narrow_dynamic", Tiles::kEven, {{192, 1, 0.55, 1}, {128, 1, 0.9, 2.5}}, 64, 0,
     {{{2.008, 0.6215, 0, 0.9628, 0.07771, 0.3032, 0, 0.07056, 1.345},
       {2.665, 0.6341, 0, 0.6658, 0.07769, 0.04041, 0.05492, 0.01732, 1.577},
       {2.181, 0.5587, 0.07314, 1.1, 0.01669, 0.1099, 0.02044, 0.003219, 1.96},
       {3.751, 0.632, 0.03457, 1.302, 0.006179, 0.004384, 0, 0.001259, 0.2648},
       {0.8307, 0.5822, 0.06661, 0.5383, 0.01364, 0.04047, 0.07563, 0.002354, 5.982}},
      {{2.727, 0.4571, 0.02648, 0.2455, 0.2836, 0.4621, 0, 0.2803, 1.353},
       {2.489, 0.4822, 0, 0.3015, 0.03845, 0.3112, 0.72, 0.08513, 1.016},
       {3.657, 0.495, 0.08813, 0.5801, 0.04298, 0.007943, 0.2797, 0.02318, 1.234},
       {3.192, 0.5704, 0.0762, 1.098, 0.0257, 0.02612, 0, 0.005058, 0},
       {0.3916, 0.5293, 0.1151, 0.6353, 0.03937, 0.1338, 0.09535, 0.01036, 3.919}}},
     {{{3, 4, 1}, {1.1312, 0.99267, 39.5}, {0.99099, 1.0019, 1.0172, 1.01}},
      {{3, 4, 3}, {1.1644, 0.85417, 1.1786}, {0.98558, 1.0055, 1.0283, 0.9934}}}},
    {"between_wide", Tiles::kEven, {{192, 1, 0.35, 4}, {128, 1, 1, 7}}, 128, 0,
     {{{1.195, 0.5841, 0, 0.3032, 0, 0.1756, 0.4497, 0.04443, 0},
       {1.829, 0.5431, 0, 0.1455, 0.0938, 0, 0.3428, 0.03104, 0},
       {0.8732, 0.5228, 0.01522, 0.3135, 0.04833, 0.1204, 0.4386, 0.01119, 0.3098},
       {2.105, 0.5725, 0.02351, 1.334, 0.01328, 0.003035, 0.2257, 0.0002, 0.1923},
       {1.919, 0.5654, 0.01813, 0.5574, 0.01871, 0, 0.387, 0, 0}},
      {{1.557, 0.4483, 0.002706, 0.0877, 0, 0.0639, 0.744, 0.1583, 0},
       {0.8791, 0.459, 0, 0.1867, 0.06691, 0.114, 0.7642, 0.1372, 0},
       {0.9066, 0.5355, 0.07151, 0, 0.01686, 0.05351, 0.4973, 0.03924, 0},
       {1.519, 0.4937, 0.1023, 0.08677, 0.03678, 0.06907, 0.4715, 0.002757, 0},
       {0, 0.5268, 0.07422, 0.9235, 0.03941, 0.05558, 0.2758, 0, 0.003567}}},
     {{{0, 0, 0}, {608, 352, 672}, {1.0029, 1.0174, 0.98772, 1.0004}},
      {{3, 0, 3}, {1.1035, 1504, 1.65}, {1.0112, 0.98243, 1.0125, 1.0102}}}},
    {"between_wide_dynamic", Tiles::kEven, {{0, 1, 1, 4}, {128, 1, 1, 1}}, 128, 0,
     {{{0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0}},
      {{3.49, 0.538, 0.07045, 1.048, 0, 0.1788, 0.6159, 0.1497, 0},
       {3.835, 0.5581, 0.135, 1.08, 0.01632, 0.0545, 0.43, 0.1306, 0.345},
       {3.464, 0.4607, 0.1454, 0.9468, 0, 0.07997, 0.5182, 0.06351, 0.5823},
       {1.447, 0.507, 0.1551, 1.129, 0, 0.09247, 0.631, 0.01452, 0},
       {1.158, 0.5092, 0.1566, 0.03251, 0.005603, 0.1309, 0.9895, 0.01803, 3.604}}},
     {{},
      {{4, 1, 2}, {0.98305, 17, 0.5}, {1.0374, 1.0039, 0.98124, 1.0214}}}},
    {"short_in_step", Tiles::kFree, {{64, 5, 1, 1}, {64, 4, 1, 1}}, 64, 0,
     {{{1.942, 0.1579, 0, 0.2738, 0, 0.1224, 0.2652, 0, 2.008},
       {1.368, 0.1711, 0.03498, 0.34, 0, 0.315, 0.2868, 0.02223, 0.4997},
       {1.372, 0.1809, 0.05373, 0.3235, 0.0002146, 0.2771, 0.1491, 0.01192, 0.3134},
       {0, 0.211, 0.04591, 0.2845, 0, 0.1112, 0.3356, 0.001245, 5.1},
       {3.219, 0.1939, 0.0327, 0.4183, 0, 0.08396, 0.1715, 0.006047, 0}},
      {{1.427, 0.2463, 0.028, 0.5784, 0, 0, 1.001, 0.1161, 0},
       {1.196, 0.1862, 0.05254, 0.7593, 0.01368, 0, 1.016, 0.07964, 0},
       {0.9926, 0.1907, 0.07001, 0.6976, 0, 0.006713, 0.9489, 0.03431, 0.2174},
       {0.4181, 0.2048, 0.07434, 0.7151, 0, 0.06863, 0.9167, 0.008965, 0.9871},
       {2.6, 0.2009, 0.06003, 0.8602, 0, 0, 0.5675, 0.01587, 0}}},
     {{{0, 3, 3}, {6080, 1.0685, 1.0034}, {1.0144, 0.99362, 0.98934, 1.0001}},
      {{3, 3, 0}, {1.5202, 1.0483, 352}, {0.99458, 1.0284, 0.99402, 0.98417}}}},
    {"short_overlap", Tiles::kFree, {{64, 3, 1, 7}, {64, 2, 1, 7}}, 64, 0,
     {{{1.471, 0.05255, 0.04877, 0.2184, 0, 0.106, 0.03208, 0.03717, 0.4895},
       {0.7826, 0.05412, 0.06139, 0.1869, 0.0102, 0.1772, 0.1479, 0.02378, 0.1816},
       {0.8669, 0.06986, 0.04919, 0.1785, 0.03697, 0.1347, 0.02046, 0.02343, 0},
       {0.5523, 0.08166, 0.04893, 0.1632, 0.04779, 0.0822, 0, 0.001015, 0},
       {1.095, 0.05028, 0.03755, 0.2741, 0.05541, 0.01517, 0, 0.01907, 0}},
      {{1.197, 0.05577, 0.09174, 0.2742, 0, 0.1072, 0.02926, 0.1811, 0},
       {0.4762, 0.06424, 0.09333, 0.2812, 0, 0.09018, 0.1632, 0.1391, 0.01509},
       {0.4893, 0.05463, 0.1132, 0.3458, 0, 0.01029, 0.2012, 0.04077, 0},
       {0, 0.07805, 0.1013, 0.3292, 0.02994, 0.02839, 0, 0.01148, 0},
       {0, 0.07355, 0.089, 0.3887, 0.02299, 0, 0, 0.08038, 0}}},
     {{{2, 0, 0}, {0.5, 672, 1056}, {0.9754, 0.99777, 1.037, 1.0048}},
      {{2, 0, 1}, {0.5, 4256, 62}, {1.0006, 0.98678, 0.97667, 1.056}}}},
    {"wgmma_persistent", Tiles::kWalk, {{256, 1, 1, 2.5}, {192, 1, 0.35, 4}}, 64, 0,
     {{{2.899, 0.6102, 0, 0, 0.2318, 0.06587, 0, 0.04941, 0.1418},
       {3.46, 0.5615, 0, 0, 0.1067, 0, 0, 0.02447, 0.4797},
       {3.006, 0.7404, 0, 0, 0.04671, 0.042, 0, 0.002133, 0.2435},
       {4.402, 0.7111, 0.02477, 0.9003, 0.02825, 0.006088, 0, 0.0009566, 0},
       {3.856, 0.7231, 0.011, 0.041, 0.03048, 0, 0.03206, 0.003838, 0.5494}},
      {{1.362, 0.5062, 0, 0.04958, 0.2213, 0.6556, 0, 0.2018, 0.8784},
       {2.585, 0.4965, 0, 0, 0.09844, 0.1343, 0.534, 0.2252, 0.1086},
       {3.342, 0.6293, 0, 0, 0.09867, 0, 0.2126, 0.04211, 0.345},
       {1.896, 0.6597, 0.08198, 1.076, 0.07092, 0.06717, 0, 0.005076, 0},
       {1.997, 0.6604, 0.008803, 0.2014, 0.09494, 0.04874, 0.00419, 0.02638, 0}}},
     {{{2, 3, 0}, {0.5, 1.3969, 544}, {0.99378, 1.0299, 1.0015, 0.98682}},
      {{3, 4, 2}, {1.209, 0.72222, 0.5}, {0.97241, 0.99433, 1.0061, 1.0173}}}},
    {"wgmma_key_groups_2", Tiles::kFree, {{128, 1, 0.75, 7}, {64, 1, 1, 4}}, 64, 0,
     {{{1.029, 0.3604, 0.01169, 0.1577, 0.1834, 0.3008, 0.09482, 0, 0},
       {1.052, 0.3856, 0, 0.2054, 0.05234, 0.06604, 0.3636, 0.01082, 0},
       {1.221, 0.3646, 0.03545, 0.2909, 0.01513, 0.01426, 0.2791, 0.0052, 0},
       {0.6766, 0.3726, 0.02399, 1.02, 0.01619, 0.006807, 0.06716, 0.0004684, 0},
       {0.6112, 0.3692, 0.02301, 0.7539, 0.02407, 0, 0.306, 0, 0}},
      {{1.252, 0.2629, 0.1728, 1.534, 0, 0.06091, 0, 0.1602, 0},
       {0.7227, 0.2224, 0.161, 1.834, 0, 0.1238, 0.2458, 0.09331, 0},
       {0.7894, 0.2445, 0.1006, 1.743, 0, 0, 1.023, 0.08437, 0},
       {0.6617, 0.2587, 0.1592, 1.519, 0, 0, 0.1994, 0.01069, 0},
       {0, 0.2442, 0.1255, 2.381, 0, 0, 0.1993, 0.05597, 0}}},
     {{{4, 3, 3}, {0.99145, 4.631, 4.0792}, {1.0076, 0.9859, 0.99309, 1.0177}},
      {{2, 3, 0}, {0.5, 1.0168, 13248}, {1.0072, 0.98987, 1.0211, 0.98443}}}},
    {"wgmma_key_groups_4", Tiles::kFree, {{64, 1, 1, 7}, {0, 1, 1, 4}}, 64, 0,
     {{{1.258, 0.1901, 0.05783, 1.252, 0, 0.04385, 0.05927, 0, 0.01794},
       {0.944, 0.1847, 0.03608, 1.32, 0, 0.07627, 0.2116, 0.04916, 0},
       {1.188, 0.1973, 0.06907, 1.172, 0.0002806, 0.008158, 0.1955, 0.03231, 0},
       {0.3805, 0.1974, 0.04901, 1.384, 0, 0.002082, 0.4499, 0, 0},
       {0.1058, 0.1965, 0.0404, 1.571, 0, 0, 0.6635, 0.00925, 0}},
      {{0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0}}},
     {{{1, 3, 0}, {43, 2.0312, 8096}, {0.99832, 1.0043, 1.0064, 0.99391}},
      {}}},
    {"cluster_keys", Tiles::kPairs, {{64, 2, 1, 4}, {0, 1, 1, 4}}, 64, 512,
     {{{1.62, 0, 0, 1.463, 0.494, 0, 0.07921, 0.003452, 0.5265},
       {1.291, 0, 0, 1.239, 0.5809, 0, 0.1058, 0.0384, 0.515},
       {1.57, 0.06667, 0, 1.379, 0.6595, 0, 0.3395, 0, 0.8606},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0}},
      {{0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0}}},
     {{{3, 0, 1}, {0.72066, 224, 33.5}, {1.0115, 0.98473, 0.97298, 1.0425}},
      {}}},
    {"cluster_rows", Tiles::kPairs, {{128, 1, 1, 4}, {0, 1, 1, 4}}, 64, 1024,
     {{{1.322, 0.08971, 0, 2.574, 0.5712, 0, 0.01329, 0, 0.06585},
       {1.186, 0.07949, 0, 2.378, 0.4644, 0, 0, 0, 0.1871},
       {1.316, 0.2351, 0, 2.27, 0.4914, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0}},
      {{0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0}}},
     {{{2, 0, 0}, {0.5, 224, 160}, {1.0063, 0.9761, 0.99945, 1.0333}},
      {}}},
    {"cluster_wide_keys", Tiles::kPairs, {{0, 1, 1, 4}, {64, 1, 1, 4}}, 64, 512,
     {{{0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0}},
      {{1.012, 0, 0, 1.866, 0.4019, 0, 0.1301, 0, 0.03735},
       {0.8286, 0.1528, 0, 2.016, 0.4413, 0, 0.258, 0.0749, 0},
       {0.6594, 0.2353, 0, 2.077, 0.3776, 0, 0.1916, 0.02247, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0}}},
     {{},
      {{1, 0, 3}, {51, 96, 1.1127}, {1.0011, 0.99808, 1.0181, 1.0046}}}},
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
  const auto length = static_cast<double>(s.S), tiled = static_cast<double>((s.S + rows - 1) / rows * rows);
  const double traits[] = {length, static_cast<double>(heads), causal ? 1. : 0., terms[1] / terms[2], length / tiled};
  const Tree& tree = cost.trees[s.D / 128];
  const int first = traits[tree.features[0]] > tree.most[0];
  const int second = traits[tree.features[1 + first]] > tree.most[1 + first];
  return us * tree.factors[2 * first + second];
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
