// The type of Q, K, V, the weights and the output: fp16, or with ELEMENT_BF16 bf16.
#pragma once

#ifndef ELEMENT_BF16
#define ELEMENT_BF16 0
#endif
