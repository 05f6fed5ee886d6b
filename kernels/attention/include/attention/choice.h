// Which variant where on an H200 (132 SMs), by hand from 106 points of its map. Whether rows are causal is not known
// here: where the two disagree, the choice loses least for both.
#pragma once

#include <string_view>

template <typename Shape>
constexpr long long rows_of_fullest(const Shape& s, int rows) {
  return ((s.S + rows - 1) / rows * s.B * s.H + 131) / 132 * rows;
}

template <typename Shape>
constexpr std::string_view choose(const Shape& s, bool has_key_groups_4) {
  const long long heads = s.B * s.H, tiles64 = (s.S + 63) / 64 * heads, tiles128 = (s.S + 127) / 128 * heads;
  if (s.D == 128) {
    if (s.S <= 512 && tiles64 <= 66) return "cluster_wide_keys";
    if (tiles64 <= 132) return "wgmma_key_groups_2";
    if (s.S <= 64) return "wgmma_persistent";
    if (tiles128 <= 132) return s.S < 4096 ? "between_narrow" : "between_narrow_dynamic";
    if ((s.S + 191) / 192 * heads <= 132) return "between_even";
    if (tiles128 <= 264 && rows_of_fullest(s, 128) * 5 <= rows_of_fullest(s, 192) * 4) return "between_narrow";
    if (s.S >= 3000) return "between_even";
    return s.S >= 640 && tiles128 >= 800 ? "between_even_dynamic" : "wgmma_persistent";
  }
  if (s.S <= 64 || (s.S <= 512 && tiles64 <= 132)) return "cluster_keys";
  if (s.S <= 1024 && tiles128 <= 66) return "cluster_rows";
  if (tiles128 <= 132 && s.S <= 256) return "between_narrow";
  if (tiles128 <= 132) return has_key_groups_4 && tiles64 <= 210 ? "wgmma_key_groups_4" : "wgmma_key_groups_2";
  if (s.S >= 4096) return "between_wide";
  if (rows_of_fullest(s, 192) * 100 <= rows_of_fullest(s, 256) * 92) {
    return tiles128 >= 500 ? "between_narrow_dynamic" : "between_narrow";
  }
  return (s.S + 255) / 256 * heads <= 132 ? "between_even" : "wgmma_persistent";
}
