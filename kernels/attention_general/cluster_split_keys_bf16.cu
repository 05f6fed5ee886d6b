// cluster_split_keys.cu in bf16.
//
// From: no design document.

#include <attention/clusters/bf16.cuh>

#include "cluster_split_keys.cu"
