/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_ISA_H
#define BASE_ISA_H

/* Instruction sets that kernels exist for. ISA_AUTO: the widest the processor has. */
enum isa { ISA_AUTO, ISA_SCALAR, ISA_AVX2, ISA_AVX512 };

#endif
