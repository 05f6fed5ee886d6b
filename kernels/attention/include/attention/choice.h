// Which variant where on an H100 or H200 (132 SMs): by make_choice.py, from 2441 points of the map.
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
// longest row; 64 rows per SM; 64 keys of all rows per SM over the heads that share K and V. Without factors it was
// never near the fastest.
struct Cost {
  std::string_view variant;
  Tiles order;
  Tile tiles[2];
  std::int64_t step, most_keys;
  double us[2][5][8];
};

inline constexpr Cost kCosts[] = {
    {"between_even", Tiles::kEven, {{256, 1, 0.9, 4}, {192, 1, 0.55, 4}}, 64, 0,
     {{{0.7968, 0.6866, 0, 0.3703, 0.1642, 0.2493, 0, 0.02157},
       {1.258, 0.5779, 0, 0.9219, 0.164, 0, 0, 0.01846},
       {1.53, 0.7486, 0.03737, 0.1233, 0.04441, 0, 0.0004824, 0.007231},
       {1.108, 0.8051, 0.04513, 0.5488, 0.00249, 0, 0.1613, 0.002379},
       {0.8639, 0.8325, 0.004976, 0.1689, 0.004212, 0, 0.08442, 0.001469}},
      {{0.7416, 0.6327, 0, 0.3814, 0.3502, 0.384, 0.1445, 0.1835},
       {1.181, 0.4437, 0, 1.934, 0.254, 0.06657, 0.2257, 0.1048},
       {1.332, 0.6573, 0.1094, 0.8939, 0.05058, 0, 0.3243, 0.03338},
       {0, 0.8444, 0.1021, 0, 0.007048, 0.003907, 0.4203, 0.006809},
       {0, 0.8551, 0.07316, 0.7474, 0.01128, 0.01337, 0.02313, 0}}}},
    {"between_even_dynamic", Tiles::kEven, {{256, 1, 1, 1}, {192, 1, 0.35, 4}}, 64, 0,
     {{{4.805, 0.8071, 0.02619, 0.6754, 0.1359, 0, 0, 0.07957},
       {5.214, 0.3913, 0, 1.915, 0.1398, 0, 0, 0.018},
       {5.349, 0.7608, 0.08078, 0.755, 0.02054, 0.02254, 0, 0.009968},
       {4.591, 0.8244, 0.03382, 1.304, 0.002568, 0.004968, 0.1271, 0.002141},
       {7.042, 0.7888, 0.05911, 0.6672, 0.001885, 0.04904, 0.04089, 0.008869}},
      {{3.253, 0.5635, 0, 0, 0.1571, 0.9908, 0, 0.288},
       {5.729, 0.2968, 0, 0.8296, 0.3044, 0.035, 0.3539, 0.1359},
       {5.719, 0.5561, 0.1392, 0.3153, 0.0957, 0, 0, 0.03531},
       {3.182, 0.8837, 0.0693, 0, 0.005342, 2.352e-06, 0.0744, 0.00666},
       {1.781, 0.7404, 0.09104, 0, 0.03549, 0.1837, 0, 0.02222}}}},
    {"between_narrow", Tiles::kEven, {{192, 1, 0.55, 4}, {128, 1, 0.75, 2.5}}, 64, 0,
     {{{0.7649, 0.5288, 0.01091, 0.2612, 0.2093, 0.3886, 0.02979, 0.03806},
       {1.421, 0.4304, 0.0562, 0.9234, 0.1477, 0.02467, 0, 0.01159},
       {0.9926, 0.5655, 0.06829, 0.2933, 0.01588, 0.04924, 0.2193, 0.009518},
       {1.012, 0.6338, 0.04356, 0.2017, 0.003415, 0.01607, 0.2384, 0.0005388},
       {0.3002, 0.6509, 0.009299, 0.406, 0.003615, 0.01045, 0.2955, 0.0004663}},
      {{1.247, 0.7778, 0.09817, 0.4647, 0.2767, 0.1214, 0, 0.149},
       {1.254, 0.6885, 0.2325, 0.7011, 0.05254, 0.001618, 0.08359, 0.06983},
       {1.066, 0.5576, 0.1648, 1.841, 0.0001111, 0.0329, 0.2764, 0.02674},
       {0, 0.6725, 0.05034, 0.9784, 0.006822, 0.07922, 0.7063, 0.008941},
       {0, 0.6561, 0.06089, 1.841, 0.003641, 0.04724, 0.3272, 0.001496}}}},
    {"between_narrow_dynamic", Tiles::kEven, {{192, 1, 0.55, 1}, {128, 1, 0.9, 2.5}}, 64, 0,
     {{{2.192, 0.5878, 0.2344, 1.026, 0.03969, 0.3672, 0, 0.1046},
       {4.176, 0.5522, 0, 0.503, 0.1672, 0.2133, 0, 0},
       {4.603, 0.5273, 0.1553, 0.7404, 0.00379, 0.07301, 0.09172, 0.006538},
       {4.1, 0.6583, 0.02712, 1.369, 0.0004147, 0.012, 0, 0.00146},
       {5.497, 0.6005, 0.06005, 0.4077, 0.005045, 0.05171, 0.2653, 0.004684}},
      {{3.586, 0.4332, 0.1402, 0.1011, 0.1894, 0.8772, 0, 0.2817},
       {4.673, 0.4563, 0.1135, 0.2258, 0.02816, 0.2283, 0.3638, 0.1148},
       {5.218, 0.4989, 0.1435, 0.3823, 0.01828, 0, 0.3374, 0.02604},
       {2.992, 0.6735, 0.03116, 0, 0.004597, 0.02685, 0.4371, 0.009074},
       {2.945, 0.635, 0.06135, 0.6893, 0.002732, 0.1109, 0.1042, 0.01245}}}},
    {"between_wide", Tiles::kEven, {{192, 1, 0.35, 4}, {128, 1, 1, 7}}, 128, 0,
     {{{0.8591, 0.5716, 0, 0.5202, 0, 0.3087, 0.3813, 0.03593},
       {2.031, 0.4477, 0.06184, 0.8159, 0.1309, 0, 0.09601, 0.009329},
       {0.8666, 0.5155, 0.1137, 0.2418, 0.01749, 0.1472, 0.2978, 0.01519},
       {2.082, 0.6042, 0.03788, 0.6875, 0.001221, 0.008691, 0.3689, 0.0007718},
       {1.126, 0.6204, 0.01187, 0.6453, 0.002697, 0, 0.3384, 0.001081}},
      {{1.313, 0.3639, 0.003881, 0.9553, 0, 0.2226, 0.6716, 0.181},
       {0.555, 0.4105, 0.09095, 0.553, 0.08954, 0.2643, 0.2548, 0.1272},
       {1.118, 0.5266, 0.09884, 0, 0, 0.06244, 0.3877, 0.03711},
       {0.45, 0.5619, 0.1003, 0, 0, 0.1215, 0.2377, 0.004887},
       {0, 0.591, 0.04491, 0.03066, 0.01174, 0.03657, 0.5166, 0.002587}}}},
    {"between_wide_dynamic", Tiles::kEven, {{0, 1, 1, 4}, {128, 1, 1, 1}}, 128, 0,
     {{{0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}},
      {{2.042, 1.146, 0.127, 0.01199, 0, 0.7563, 0.1518, 0.2157},
       {3.742, 0.5147, 0.2109, 0.783, 0.003744, 0.1231, 0.2769, 0.179},
       {4.327, 0.4506, 0.1566, 2.043, 0, 0.08394, 0.06586, 0.05014},
       {0, 0.5755, 0.07388, 0.7093, 0.00228, 0.1451, 0.9918, 0.01196},
       {4.587, 0.531, 0.06956, 0, 0.02413, 0.1263, 1.183, 0.01826}}}},
    {"short_in_step", Tiles::kFree, {{64, 5, 1, 1}, {64, 4, 1, 1}}, 64, 0,
     {{{2.085, 0.1315, 0.05724, 0.1598, 0, 0.2961, 0.5006, 0.001307},
       {1.148, 0.1457, 0.08397, 0.3251, 0, 0.385, 0.3149, 0},
       {1.296, 0.1843, 0.04697, 0.2977, 0, 0.303, 0.2498, 0.007386},
       {0.8691, 0.29, 0.005081, 0.08682, 0, 0.2158, 0.4792, 0.002426},
       {1.977, 0.2528, 0, 0.2726, 0, 0.1152, 0.2851, 0.004682}},
      {{1.811, 0.2448, 0.1794, 0.5407, 0, 0.04723, 0.5079, 0.0736},
       {1.016, 0.1446, 0.2074, 0.8349, 0, 0, 0.5489, 0.0546},
       {0.8271, 0.1867, 0.04844, 0.7551, 0, 0.07356, 1.055, 0.0351},
       {0.1421, 0.3153, 0.006621, 0.5363, 0, 0.1256, 1.054, 0.006811},
       {3.411, 0.2707, 0, 0.8318, 0, 0, 0.5009, 0.01281}}}},
    {"short_overlap", Tiles::kFree, {{64, 3, 1, 7}, {64, 2, 1, 7}}, 64, 0,
     {{{1.328, 0.04634, 0.06485, 0.2054, 0, 0.2032, 0.003341, 0.04813},
       {0.5382, 0.05264, 0.05902, 0.2185, 0, 0.3371, 0.001806, 0.03973},
       {0.7, 0.09261, 0.03632, 0.1878, 0.01001, 0.1551, 0, 0.01675},
       {0, 0.167, 0.005526, 0.05865, 0.04194, 0.1153, 0, 0.003246},
       {0, 0.1138, 0.001355, 0.3001, 0.01383, 0.01619, 0, 0.01764}},
      {{1.063, 0.06422, 0.1006, 0.2665, 0.0001575, 0.2178, 0, 0.2129},
       {0.4126, 0.07609, 0.1002, 0.3021, 0, 0.1398, 0.005381, 0.1282},
       {0.4941, 0.06371, 0.1012, 0.3219, 0, 0.06146, 0.2016, 0.04597},
       {0, 0.2371, 0, 0.25, 0.004883, 0.0003717, 0, 0.01308},
       {0, 0.1922, 0.007701, 0.3294, 0.01131, 0, 0, 0.06329}}}},
    {"wgmma_persistent", Tiles::kWalk, {{256, 1, 1, 2.5}, {192, 1, 0.35, 4}}, 64, 0,
     {{{2.797, 0.5082, 0, 0.3357, 0.2801, 0.1783, 0, 0.06491},
       {3.56, 0.4311, 0, 0.7582, 0.1694, 0, 0, 0.02079},
       {3.413, 0.7062, 0.003021, 0, 0.0561, 0.04922, 0, 0.003815},
       {3.252, 0.8082, 0.03466, 0.2849, 0.004816, 0, 0.0568, 0.001895},
       {3.611, 0.7773, 0.02428, 0, 0.01254, 0.002282, 0.01626, 0.002296}},
      {{1.481, 0.409, 0.08395, 0.3, 0.2259, 0.8879, 0, 0.2554},
       {3.714, 0.2814, 0, 1.187, 0.2254, 0.00277, 0.3491, 0.1374},
       {3.16, 0.6626, 0.03067, 0, 0.0868, 0, 0.1342, 0.04127},
       {1.347, 0.8634, 0.08417, 0, 0.006168, 0.005118, 0.008458, 0.007201},
       {1.444, 0.7803, 0.01865, 0, 0.05194, 0.0511, 0, 0.007985}}}},
    {"wgmma_key_groups_2", Tiles::kFree, {{128, 1, 0.75, 7}, {64, 1, 1, 4}}, 64, 0,
     {{{0.8186, 0.3282, 0.01451, 0.4722, 0.2236, 0.423, 0, 0},
       {0.8297, 0.3583, 0.01017, 0.5333, 0.1047, 0.1512, 0.09748, 0.005419},
       {0.9567, 0.3706, 0.06639, 0.4589, 0, 0.0263, 0.1341, 0.007932},
       {0.8377, 0.4078, 0.02772, 0.5083, 0, 0.006158, 0.1853, 0.0005306},
       {0.4476, 0.4082, 0.0181, 0.4602, 0.001479, 0, 0.3941, 0.001061}},
      {{1.41, 0.4394, 0.1588, 0.6147, 0, 0, 0, 0.1922},
       {0.9791, 0.2721, 0.1856, 1.561, 0, 0.06989, 0.06241, 0.06681},
       {0.6616, 0.2432, 0.07847, 1.997, 0.01806, 0.03746, 0.9153, 0.04798},
       {0.3383, 0.3348, 0.08031, 0.54, 0.004287, 0, 1.148, 0.01118},
       {0, 0.3157, 0.0798, 2.32, 0.002229, 0, 0.6619, 0.0532}}}},
    {"wgmma_key_groups_4", Tiles::kFree, {{64, 1, 1, 7}, {0, 1, 1, 4}}, 64, 0,
     {{{1.31, 0.2754, 0.05743, 0.5567, 0, 0.01754, 0.03345, 0},
       {0.754, 0.1907, 0.06301, 1.319, 0, 0.1514, 0, 0.01395},
       {1.245, 0.1862, 0.05108, 1.366, 8.908e-05, 0.01847, 0.1059, 0.04611},
       {0, 0.2255, 0.01588, 1.177, 0.004868, 0.006824, 0.735, 0},
       {0, 0.2299, 0, 1.43, 0.008573, 0.006044, 1.02, 0.01553}},
      {{0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}}}},
    {"cluster_keys", Tiles::kPairs, {{64, 2, 1, 4}, {0, 1, 1, 4}}, 64, 512,
     {{{1.744, 0, 0.02817, 1.286, 0.6994, 0, 0.003926, 0.02426},
       {1.584, 0, 0, 1.329, 0.7047, 0.001132, 0.02242, 0.01089},
       {1.337, 0.009701, 0, 1.614, 0.9522, 0.1018, 0.02208, 0.01029},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}},
      {{0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}}}},
    {"cluster_rows", Tiles::kPairs, {{128, 1, 1, 4}, {0, 1, 1, 4}}, 64, 1024,
     {{{1.281, 0.02188, 0.2247, 2.714, 0.1839, 0.02582, 0, 0},
       {1.193, 0, 0, 2.789, 0.4557, 0, 0, 0},
       {1.289, 0.2519, 0, 2.055, 0.6291, 0, 0, 0.01181},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}},
      {{0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}}}},
    {"cluster_wide_keys", Tiles::kPairs, {{0, 1, 1, 4}, {64, 1, 1, 4}}, 64, 512,
     {{{0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}},
      {{1.141, 0, 0, 2.079, 0.4475, 0, 0, 0.05022},
       {0.8632, 0.07459, 0, 2.325, 0.6016, 0, 0, 0.06454},
       {0.5453, 0.2796, 0, 1.931, 0.5099, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0}}}},
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
    const Load load = load_of(cost, s, causal, 132);
    terms[1] = load.fullest;
    terms[2] = load.mean;
    terms[3] = fit > 132 ? load_of(cost, s, causal, fit).fullest : load.waves;
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
