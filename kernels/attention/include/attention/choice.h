// Which variant where on an H100 or H200 with 132 SMs: by the rows of the fullest SM. To be replaced by a fitted one.
#pragma once

template <typename Shape>
constexpr long long rows_of_fullest(const Shape& s, int rows) {
  return ((s.S + rows - 1) / rows * s.B * s.H + 131) / 132 * rows;
}

template <typename Shape>
constexpr const char* choose_general(const Shape& s) {
  const long long heads = s.B * s.H, tiles64 = (s.S + 63) / 64 * heads, tiles128 = (s.S + 127) / 128 * heads;
  if (s.D == 128) {
    if (s.S <= 512 && tiles64 <= 66) return "cluster_wide_keys";
    if (tiles64 <= 132) return "wgmma_key_groups_2";
    if (rows_of_fullest(s, 128) * 21 <= rows_of_fullest(s, 192) * 20) {
      return tiles128 <= 132 ? "between_narrow" : "between_narrow_dynamic";
    }
    return (s.S + 191) / 192 * heads <= 132 ? "between_even" : "between_even_dynamic";
  }
  if (s.S <= 512 && tiles64 <= 66) return "cluster_keys";
  if (s.S <= 1024 && tiles128 <= 66) return "cluster_rows";
  if (tiles128 <= 132) return "wgmma_key_groups_2";
  if (rows_of_fullest(s, 192) * 21 <= rows_of_fullest(s, 256) * 20) return "between_narrow";
  return (s.S + 255) / 256 * heads <= 132 || s.S >= 4096 ? "between_even" : "wgmma_persistent";
}

template <typename Shape>
constexpr const char* choose_general_bf16(const Shape& s) {
  const long long heads = s.B * s.H, tiles64 = (s.S + 63) / 64 * heads, tiles128 = (s.S + 127) / 128 * heads;
  if (s.D == 128) {
    if (s.S <= 512 && tiles64 <= 66) return "cluster_wide_keys_bf16";
    if (tiles64 <= 132) return "wgmma_key_groups_2_bf16";
    if (rows_of_fullest(s, 128) * 21 <= rows_of_fullest(s, 192) * 20) {
      return tiles128 <= 132 ? "between_narrow_bf16" : "between_narrow_dynamic_bf16";
    }
    return (s.S + 191) / 192 * heads <= 132 ? "between_even_bf16" : "between_even_dynamic_bf16";
  }
  if (s.S <= 512 && tiles64 <= 66) return "cluster_keys_bf16";
  if (s.S <= 1024 && tiles128 <= 66) return "cluster_rows_bf16";
  if (tiles128 <= 132) return "wgmma_key_groups_2_bf16";
  if (rows_of_fullest(s, 192) * 21 <= rows_of_fullest(s, 256) * 20) return "between_narrow_bf16";
  return (s.S + 255) / 256 * heads <= 132 || s.S >= 4096 ? "between_even_bf16" : "wgmma_persistent_bf16";
}
