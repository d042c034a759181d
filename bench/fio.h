/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_FIO_H
#define BENCH_FIO_H

/* fio as the anchor of the drive's figures: random aligned direct reads through io_uring, into
 * registered buffers on reserved huge pages, which it needs to be a fair mark. */

#include "core/base/base.h"

/* Looks for fio and raises vm.nr_hugepages by what its buffers take. Returns NULL, or why it
 * cannot serve. fio_end() puts the setting back; an interrupt does so as well. */
const char *fio_begin(uint64_t buffer_bytes);
void fio_end(void);

/* Reads for time_ms from files of `paths`. Returns GB/s, or a negative number when fio failed. */
double fio_read(char *const *paths, uint32_t count, uint64_t size_bytes, uint32_t depth,
                uint32_t time_ms, uint32_t seed);

#endif
