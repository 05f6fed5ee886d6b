// Of which type Q, K, V, the weights and the output are: fp16, or with ELEMENT_BF16 bf16.
#pragma once

#ifndef ELEMENT_BF16
#define ELEMENT_BF16 0
#endif
