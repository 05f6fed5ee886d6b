// Which variant where on an H100 or H200 (132 SMs): by make_choice.py, from 2932 points of the map.
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
     {{{0.9627, 0.747, 0, 0.005191, 0.1432, 0.1275, 0.04077, 0.02564, 0},
       {1.189, 0.7093, 0, 0.01574, 0.1199, 0, 0.07159, 0.02752, 0},
       {1.485, 0.7601, 0.02505, 0, 0.04402, 0, 0.0423, 0.004718, 0},
       {1.09, 0.7538, 0.03558, 1.433, 0.01863, 0, 0.01079, 0.001905, 0},
       {1.434, 0.7734, 0.01322, 0.2367, 0.01953, 0, 0.07059, 0, 0}},
      {{0.9715, 0.6642, 0, 0.06795, 0.2097, 0.231, 0.4859, 0.1463, 0},
       {0.8845, 0.6411, 0, 0.3538, 0.1542, 0.1186, 0.5763, 0.1383, 0},
       {1.236, 0.6288, 0.01412, 0.9683, 0.09345, 0, 0.5295, 0.03152, 0},
       {0, 0.7124, 0.09681, 1.373, 0.05663, 0.01284, 0.07907, 0.003772, 0.5447},
       {0.3609, 0.7145, 0.06477, 1.344, 0.0614, 0.04714, 0.0136, 0, 0}}},
     {{{0, 2, 3}, {672, 0.5, 1.3373}, {1.0119, 1.0011, 0.99969, 1.011}},
      {{1, 3, 3}, {265, 3.4155, 1.1423}, {1.003, 1.0157, 0.99882, 0.98577}}}},
    {"between_even_dynamic", Tiles::kEven, {{256, 1, 1, 1}, {192, 1, 0.35, 4}}, 64, 0,
     {{{2.471, 0.7803, 0, 0.8545, 0.1162, 0.07552, 0, 0.07669, 1.987},
       {3.374, 0.6345, 0, 1.07, 0.07928, 0, 0, 0.04398, 1.72},
       {3.226, 0.7647, 0.01076, 0.9561, 0.03272, 0.07857, 0, 0.004434, 1.855},
       {3.553, 0.7735, 0.0387, 1.85, 0.0151, 0, 0, 0.001843, 1.219},
       {0, 0.7336, 0.0608, 0.7158, 0.01653, 0.08341, 0, 0.007825, 7.133}},
      {{1.721, 0.4666, 0, 0.09149, 0.1749, 0.7711, 0.1539, 0.2563, 2.192},
       {3.06, 0.4574, 0, 0.03984, 0.1883, 0.1976, 0.4673, 0.1681, 2.112},
       {3.038, 0.5133, 0.01744, 1.029, 0.1484, 0.08597, 0.009564, 0.0308, 2.244},
       {3.566, 0.5992, 0.09875, 1.308, 0.09334, 0.06469, 0, 0.004566, 0},
       {1.409, 0.5029, 0.1098, 0.5332, 0.1134, 0.2149, 0, 0.02046, 2.619}}},
     {{{4, 0, 3}, {0.8625, 96, 1.0017}, {0.99081, 1.0109, 1.0093, 0.9998}},
      {{3, 4, 2}, {1.1705, 0.9213, 0.5}, {0.99576, 1.0015, 1.0141, 1.0027}}}},
    {"between_narrow", Tiles::kEven, {{192, 1, 0.55, 4}, {128, 1, 0.75, 2.5}}, 64, 0,
     {{{0.88, 0.5711, 0, 0, 0.1434, 0.3075, 0.1798, 0.04291, 0},
       {1.078, 0.5438, 0.002187, 0.1843, 0.1085, 0.07389, 0.1901, 0.02167, 0.1169},
       {0.9852, 0.5575, 0.01262, 0.3199, 0.03775, 0.05003, 0.3215, 0.006985, 0},
       {0.6462, 0.5944, 0.02974, 1.214, 0.02084, 0.01988, 0.009522, 4.491e-05, 0},
       {0.771, 0.5912, 0.01259, 0.4893, 0.02452, 0.01316, 0.2792, 0, 0}},
      {{1.185, 0.6283, 0.05915, 0.9461, 0.2103, 0.1482, 0.3003, 0.1218, 0},
       {1.009, 0.5743, 0.06374, 1.248, 0.09472, 0.05163, 0.5203, 0.09087, 0},
       {1.133, 0.5747, 0.1045, 1.599, 0.024, 0, 0.4708, 0.02588, 0.03032},
       {0.1638, 0.629, 0.06473, 1.768, 0.0218, 0.05502, 0.3421, 0.009032, 0.309},
       {0, 0.5993, 0.07202, 1.785, 0.02789, 0.05679, 0.3912, 0, 0.006675}}},
     {{{3, 3, 1}, {9.9, 1.5714, 7}, {1.0017, 1.0078, 0.98034, 0.99913}},
      {{1, 4, 3}, {265, 0.98113, 1.1004}, {1.007, 1.0018, 0.99909, 0.98273}}}},
    {"between_narrow_dynamic", Tiles::kEven, {{192, 1, 0.55, 1}, {128, 1, 0.9, 2.5}}, 64, 0,
     {{{1.892, 0.629, 0, 0.9475, 0.08289, 0.3422, 0, 0.07244, 1.339},
       {2.634, 0.6259, 0, 0.6253, 0.06887, 0.03583, 0.07597, 0.0161, 1.581},
       {2.276, 0.5657, 0.06117, 1.007, 0.01899, 0.1127, 0.02706, 0.004345, 1.969},
       {3.8, 0.6361, 0.02715, 1.458, 0.007847, 0.003375, 0, 0.001452, 0.2713},
       {0.8559, 0.5845, 0.05791, 0.5857, 0.01508, 0.03992, 0.08575, 0.001885, 5.953}},
      {{2.819, 0.4389, 0.04083, 0.1915, 0.2865, 0.4125, 0, 0.2654, 1.429},
       {2.772, 0.4783, 0, 0.3025, 0.03678, 0.3318, 0.6241, 0.1144, 1.027},
       {3.689, 0.5097, 0.08659, 0.6099, 0.04342, 0.00226, 0.2793, 0.02408, 1.177},
       {3.243, 0.5812, 0.07966, 0.9596, 0.02848, 0.01553, 0, 0.006308, 0},
       {0.4613, 0.5156, 0.1134, 0.6609, 0.03925, 0.1316, 0.08125, 0.01051, 3.878}}},
     {{{3, 4, 1}, {1.1312, 0.99267, 39.5}, {0.99855, 1.0045, 1.0037, 1.0146}},
      {{4, 3, 3}, {0.90833, 1.1364, 1.3834}, {0.98737, 1.0032, 1.0027, 1.013}}}},
    {"between_wide", Tiles::kEven, {{192, 1, 0.35, 4}, {128, 1, 1, 7}}, 128, 0,
     {{{1.103, 0.5932, 0, 0.2487, 0, 0.2027, 0.4532, 0.04795, 0},
       {1.81, 0.5501, 0, 0.1111, 0.09066, 0, 0.3472, 0.03187, 0},
       {0.8605, 0.5285, 0.01232, 0.2463, 0.04709, 0.1217, 0.4608, 0.01113, 0.3143},
       {1.964, 0.5819, 0.02267, 1.191, 0.01436, 0.001327, 0.2545, 0.0004716, 0.1263},
       {1.568, 0.5739, 0.01647, 0.5446, 0.01897, 0, 0.3771, 0, 0}},
      {{1.565, 0.4521, 0.002893, 0.06204, 0, 0.06585, 0.7372, 0.1461, 0},
       {0.8723, 0.465, 0, 0.1432, 0.06379, 0.1169, 0.7509, 0.1473, 0},
       {0.9486, 0.5266, 0.06933, 0, 0.01835, 0.04724, 0.4993, 0.03812, 0},
       {1.535, 0.501, 0.09403, 0.1133, 0.03713, 0.08941, 0.3768, 0.002588, 0},
       {0, 0.523, 0.06308, 0.7862, 0.03873, 0.05097, 0.2726, 0, 0}}},
     {{{0, 0, 0}, {608, 352, 672}, {1.0032, 1.0178, 0.98792, 1.0008}},
      {{3, 0, 3}, {1.1035, 1504, 1.65}, {1.0105, 1.0012, 0.99274, 1.0102}}}},
    {"between_wide_dynamic", Tiles::kEven, {{0, 1, 1, 4}, {128, 1, 1, 1}}, 128, 0,
     {{{0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0}},
      {{3.458, 0.5567, 0.06553, 1.106, 0, 0.1495, 0.5583, 0.1974, 0},
       {3.585, 0.4997, 0.119, 1.04, 0.02629, 0.06732, 0.3754, 0.1528, 0.2933},
       {3.327, 0.4808, 0.1363, 1.264, 0, 0.1014, 0.467, 0.0467, 0.5205},
       {2.756, 0.5149, 0.1531, 1.123, 0, 0.05346, 0.5792, 0.008831, 0},
       {1.051, 0.4965, 0.1512, 0.08145, 0.004522, 0.1306, 0.9775, 0.01811, 3.733}}},
     {{},
      {{4, 1, 2}, {0.98507, 19, 0.5}, {1.0368, 1.0048, 0.99246, 1.0073}}}},
    {"short_in_step", Tiles::kFree, {{64, 5, 1, 1}, {64, 4, 1, 1}}, 64, 0,
     {{{1.941, 0.1625, 0, 0.2787, 0, 0.1186, 0.25, 0, 1.805},
       {1.361, 0.1752, 0.0328, 0.3129, 0, 0.2723, 0.3274, 0.01843, 0.5135},
       {1.433, 0.1811, 0.05209, 0.3227, 0.0003261, 0.2453, 0.1971, 0.008103, 0.2997},
       {0, 0.211, 0.04536, 0.2917, 0, 0.09736, 0.3206, 0.00161, 5.308},
       {3.828, 0.1958, 0.03312, 0.4114, 0, 0.06952, 0.1488, 0.005548, 0}},
      {{1.633, 0.225, 0.03697, 0.6186, 0, 0, 0.9148, 0.08127, 0},
       {1.01, 0.1937, 0.05671, 0.7587, 0.0169, 0, 0.9223, 0.1081, 0},
       {1.13, 0.1783, 0.06806, 0.7616, 0, 0.0003581, 0.9481, 0.03798, 0.256},
       {0.5206, 0.2054, 0.07653, 0.7039, 0, 0.07748, 0.9572, 0.008179, 0.2318},
       {2.536, 0.1976, 0.06001, 0.8711, 0, 0, 0.5806, 0.01465, 0}}},
     {{{0, 3, 3}, {6080, 5.1071, 1.0007}, {1.0044, 0.99552, 0.98881, 0.99917}},
      {{3, 3, 0}, {1.5202, 1.0622, 352}, {1.0016, 1.0094, 0.99872, 0.98479}}}},
    {"short_overlap", Tiles::kFree, {{64, 3, 1, 7}, {64, 2, 1, 7}}, 64, 0,
     {{{1.313, 0.0508, 0.04754, 0.2104, 0, 0.1194, 0.03128, 0.04029, 0.455},
       {0.8243, 0.04867, 0.04563, 0.2202, 0.01067, 0.2066, 0.1258, 0.0266, 0.1797},
       {0.9471, 0.06007, 0.04894, 0.2089, 0.03242, 0.1272, 0.02251, 0.01635, 0},
       {0.3203, 0.07118, 0.05235, 0.1751, 0.05451, 0.1004, 0, 0.001281, 0.03175},
       {1.087, 0.05128, 0.03987, 0.2766, 0.05315, 0.01604, 0, 0.0143, 0}},
      {{1.153, 0.06197, 0.101, 0.2668, 0, 0.1192, 0.03875, 0.2026, 0},
       {0.5269, 0.06669, 0.09561, 0.2958, 0, 0.09395, 0.173, 0.1444, 0.01169},
       {0.6588, 0.05304, 0.1053, 0.3362, 0, 0.01141, 0.199, 0.05788, 0},
       {0, 0.07528, 0.0942, 0.3421, 0.03203, 0.02839, 0, 0.01014, 0},
       {0, 0.07628, 0.09414, 0.3729, 0.02424, 0, 0, 0.06002, 0}}},
     {{{2, 0, 0}, {0.5, 672, 1056}, {0.99191, 1.0015, 1.0146, 1.0007}},
      {{2, 0, 1}, {0.5, 4256, 62}, {0.99224, 1.0148, 1.0027, 1.0194}}}},
    {"wgmma_persistent", Tiles::kWalk, {{256, 1, 1, 2.5}, {192, 1, 0.35, 4}}, 64, 0,
     {{{2.77, 0.6114, 0, 0, 0.2354, 0.1086, 0, 0.06039, 0.108},
       {3.193, 0.5994, 0, 0, 0.1196, 0, 0, 0.02953, 0.4895},
       {3.231, 0.7018, 0, 0, 0.0581, 0.052, 0, 0.002287, 0.1993},
       {3.525, 0.716, 0.02586, 0.9343, 0.0309, 0.006804, 0, 0.001438, 0},
       {3.744, 0.7105, 0.01173, 0, 0.03528, 0, 0.04421, 0.002297, 0.4944}},
      {{1.392, 0.486, 0, 0.05228, 0.2579, 0.6344, 0, 0.2026, 0.9105},
       {2.831, 0.4682, 0, 0, 0.1044, 0.1395, 0.6347, 0.1842, 0.1612},
       {2.881, 0.6289, 0, 0, 0.1112, 0, 0.2246, 0.04186, 0.3798},
       {2.113, 0.6261, 0.09359, 1.005, 0.08531, 0.0473, 0, 0.004746, 0},
       {2.137, 0.6686, 0.00748, 0.2835, 0.09679, 0.0582, 0.001789, 0.01834, 0}}},
     {{{2, 0, 0}, {0.5, 672, 544}, {1.017, 1.0007, 0.99187, 1.0005}},
      {{3, 3, 2}, {1.209, 1.0928, 0.5}, {0.99706, 1.0018, 1.016, 1.0063}}}},
    {"wgmma_key_groups_2", Tiles::kFree, {{128, 1, 0.75, 7}, {64, 1, 1, 4}}, 64, 0,
     {{{0.9695, 0.3635, 0.007259, 0.1223, 0.1859, 0.3145, 0.1201, 0, 0},
       {1.042, 0.3807, 0, 0.1659, 0.04795, 0.06581, 0.3854, 0.01105, 0},
       {0.9969, 0.3762, 0.03279, 0.3604, 0.01618, 0.0149, 0.293, 0.00461, 0},
       {0.7524, 0.3787, 0.02314, 0.9866, 0.0167, 0.006454, 0.08667, 0.000504, 0},
       {0.6238, 0.3702, 0.01963, 0.6913, 0.02198, 0, 0.3525, 0, 0}},
      {{1.264, 0.2611, 0.1725, 1.542, 0, 0.05944, 0, 0.1545, 0},
       {0.7337, 0.2238, 0.1579, 1.823, 0, 0.1225, 0.2452, 0.1031, 0},
       {0.8196, 0.2577, 0.09566, 1.804, 0, 0, 0.8932, 0.04965, 0},
       {0.6994, 0.2595, 0.1608, 1.487, 0, 0, 0.1631, 0.009268, 0},
       {0, 0.2664, 0.1334, 2.696, 0, 0, 0.2114, 0.05267, 0}}},
     {{{4, 3, 3}, {0.99145, 4.631, 3.8333}, {1.0053, 0.98602, 0.99971, 1.0161}},
      {{2, 3, 0}, {0.5, 1.0768, 13568}, {1.004, 0.99102, 1.0095, 0.98395}}}},
    {"wgmma_key_groups_4", Tiles::kFree, {{64, 1, 1, 7}, {0, 1, 1, 4}}, 64, 0,
     {{{1.199, 0.1927, 0.05697, 1.209, 0, 0.06799, 0.08403, 0, 0},
       {0.9279, 0.1879, 0.0328, 1.287, 0, 0.07774, 0.2494, 0.05026, 0},
       {1.273, 0.1955, 0.04808, 1.204, 0.0007887, 0.008145, 0.2353, 0.03202, 0},
       {0.3631, 0.1997, 0.047, 1.333, 0, 0.001761, 0.5123, 0, 0},
       {0.07917, 0.2052, 0.03834, 1.56, 0, 0, 0.7048, 0.00998, 0}},
      {{0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0}}},
     {{{1, 3, 0}, {43, 2.0312, 10016}, {0.99304, 1.0048, 1.0063, 0.99232}},
      {}}},
    {"cluster_keys", Tiles::kPairs, {{64, 2, 1, 4}, {0, 1, 1, 4}}, 64, 512,
     {{{1.577, 0, 0.01722, 1.403, 0.5494, 0, 0.0641, 0.01123, 0.5194},
       {1.42, 6.474e-06, 0, 1.368, 0.568, 0, 0.105, 0.02701, 0.4785},
       {1.683, 0.06701, 0, 1.361, 0.6791, 0, 0.3573, 0, 0.826},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0}},
      {{0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0}}},
     {{{3, 0, 1}, {0.72066, 224, 33.5}, {1.0019, 0.98395, 1.0011, 1.0211}},
      {}}},
    {"cluster_rows", Tiles::kPairs, {{128, 1, 1, 4}, {0, 1, 1, 4}}, 64, 1024,
     {{{1.307, 0.1148, 0.01682, 2.507, 0.5699, 0, 0.01746, 0.0008304, 0},
       {1.174, 0.08898, 0, 2.34, 0.4739, 0, 0, 0, 0.2004},
       {1.279, 0.2468, 0, 2.106, 0.6072, 0, 0, 0.004491, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0}},
      {{0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0}}},
     {{{2, 0, 0}, {0.5, 544, 160}, {0.98753, 1.0049, 0.99924, 1.0258}},
      {}}},
    {"cluster_wide_keys", Tiles::kPairs, {{0, 1, 1, 4}, {64, 1, 1, 4}}, 64, 512,
     {{{0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0}},
      {{1.081, 0, 0, 2.062, 0.4034, 0, 0.1333, 0, 0.0251},
       {0.84, 0.1532, 0, 2.016, 0.4322, 0, 0.2544, 0.08993, 0},
       {0.6681, 0.2384, 0, 2.082, 0.3709, 0, 0.1804, 0.01691, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0}}},
     {{},
      {{0, 2, 0}, {96, 0.5, 416}, {1.0181, 1.0016, 0.9986, 1.0101}}}},
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
