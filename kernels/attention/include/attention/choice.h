// Which variant where on an H100 or H200 (132 SMs): by make_choice.py, from 146 points of the map.
//
// Short rows whose blocks run at once go to clusters. For other shapes the least predicted time decides.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

// A variant's rows per tile at D = 64 and 128, and us by D, causal or not: of a launch; of each wave of tiles, and of
// 64 keys in it; of a tile per SM, and of 64 keys in it; of 64 keys of the longest tile; and of 64 keys of the longest
// tile or of all tiles of an SM, if these are more.
struct Cost {
  std::string_view variant;
  std::int64_t rows[2];
  double us[2][2][7];
};

inline constexpr Cost kCosts[] = {
    {"between_even",
     {256, 192},
     {{{1.329, 2.343, 0.8078, 1.348, 0.07599, 0.04002, 0},
       {2.31, 0.76, 0.288, 1.853, 0.5852, 0.02006, 0}},
      {{0.3733, 3.769, 0.7942, 0.3589, 0.1907, 0.01616, 0},
       {1.454, 0.09643, 0.3975, 4.467, 0.1094, 0.2172, 0.3053}}}},
    {"between_even_dynamic",
     {256, 192},
     {{{4.542, 1.919, 0.8105, 0, 0.05658, 0, 0.03376},
       {4.483, 0, 0.5068, 1.279, 0.3493, 0.1156, 0}},
      {{3.913, 2.25, 0.7479, 0.3504, 0.2563, 0.02662, 0},
       {3.628, 0, 0.3613, 2.938, 0.2676, 0.3879, 0.1773}}}},
    {"between_narrow",
     {192, 128},
     {{{1.745, 1.391, 0.5958, 1.837, 0.06157, 0.005895, 0.03915},
       {1.909, 0.9127, 0.2135, 2.044, 0.1289, 0, 0.3428}},
      {{0.271, 4.166, 0.5278, 0, 0.2217, 0.08087, 0},
       {2.873, 0.2902, 0.0194, 3.801, 0.5012, 0, 0.1867}}}},
    {"between_narrow_dynamic",
     {192, 128},
     {{{5.39, 0, 0.5975, 1.348, 0.1018, 0.01559, 0},
       {4.377, 0, 0.3774, 1.658, 0.2699, 0.08103, 0.008264}},
      {{4.146, 2.19, 0.5724, 0, 0.1582, 0, 0},
       {4.103, 0, 0.4589, 2.791, 0.1353, 0.2021, 0.001234}}}},
    {"between_wide",
     {192, 128},
     {{{2.005, 0, 0.6658, 3.609, 0, 0.0381, 0},
       {2.527, 0, 0.3898, 3.476, 0.1461, 0.0009875, 0.104}},
      {{0.2846, 3.813, 0.3811, 1.24, 0.05765, 0.1505, 0.2468},
       {3, 0.093, 0, 4.978, 0.328, 0, 0.3304}}}},
    {"wgmma_persistent",
     {256, 192},
     {{{3.143, 2.079, 0.7862, 0, 0.08718, 0.05278, 0},
       {3.642, 0.08244, 0.2734, 1.15, 0.6209, 0.04794, 0.0001376}},
      {{2.137, 2.574, 0.836, 0, 0.1749, 0.01192, 0},
       {3.037, 0, 0.1768, 2.402, 0.44, 0.2236, 0.3113}}}},
    {"wgmma_key_groups_2",
     {128, 64},
     {{{1.59, 3.564, 0.3616, 0.07051, 0.0834, 0, 0},
       {1.605, 0, 0.3265, 3.909, 0.09519, 0, 0}},
      {{1.848, 2.124, 0.2477, 0.9556, 0.1838, 0, 0},
       {1.052, 0, 0.1732, 4.354, 0.2247, 0, 0}}}},
};

template <typename Shape>
constexpr double predicted_us(const Cost& cost, const Shape& s, bool causal) {
  const std::int64_t rows = cost.rows[s.D / 128];
  const std::int64_t tiles = (s.S + rows - 1) / rows * s.B * s.H;
  const double waves = static_cast<double>((tiles + 131) / 132), share = static_cast<double>(tiles) / 132;
  const double keys = static_cast<double>((s.S + 63) / 64);
  const double mean = causal ? (keys + static_cast<double>(rows) / 64) / 2 : keys;
  const double terms[] = {1, waves, waves * mean, share, share * mean, keys, std::max(keys, share * mean)};
  double us = 0;
  for (int i = 0; i < 7; ++i) us += cost.us[s.D / 128][causal][i] * terms[i];
  return us;
}

template <typename Shape>
constexpr std::string_view choose(const Shape& s, bool causal, bool has_key_groups_4) {
  const std::int64_t tiles64 = (s.S + 63) / 64 * s.B * s.H, tiles128 = (s.S + 127) / 128 * s.B * s.H;
  const std::int64_t tiles192 = (s.S + 191) / 192 * s.B * s.H;
  if (s.D == 128 && s.S <= 512 && tiles64 <= 66) return "cluster_wide_keys";
  if (s.D == 128 && s.S <= 64 && tiles64 > 132) return "wgmma_persistent";
  // The tiles of a second wave are short ones, beside which the longest still run.
  if (s.D == 128 && causal && s.S > 512 && tiles192 > 132 && tiles192 <= 200) return "between_even";
  if (s.D == 64) {
    if (s.S <= 64 || (s.S <= 512 && tiles64 <= 132)) return "cluster_keys";
    if (s.S <= 1024 && tiles128 <= 66) return "cluster_rows";
    if (has_key_groups_4 && s.S > 256 && tiles128 <= 132 && tiles64 <= 210) return "wgmma_key_groups_4";
  }
  const Cost* least = kCosts;
  for (const Cost& cost : kCosts) {
    if (predicted_us(cost, s, causal) < predicted_us(*least, s, causal)) least = &cost;
  }
  return least->variant;
}
