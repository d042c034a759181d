/* SPDX-License-Identifier: Apache-2.0 */
/* How much a test tries: all there is to try by night (make nightly), less with every change, and
 * little under sanitizers, which make a program ten times slower. */
#ifndef TESTS_AMOUNT_H
#define TESTS_AMOUNT_H

#if defined(K3RING_SANITIZED)
#define AMOUNT(nightly, usual, sanitized) (sanitized)
#elif defined(K3RING_NIGHTLY)
#define AMOUNT(nightly, usual, sanitized) (nightly)
#else
#define AMOUNT(nightly, usual, sanitized) (usual)
#endif

#endif
