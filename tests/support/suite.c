/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/suite.h"

TCase *suite_case(Suite *suite, const char *name, double seconds, void (*before)(void),
                  void (*after)(void))
{
    TCase *tcase = tcase_create(name);
    tcase_set_timeout(tcase, seconds);
    tcase_add_checked_fixture(tcase, before, after);
    suite_add_tcase(suite, tcase);
    return tcase;
}

int suite_run(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
#ifdef K3RING_SANITIZED
    srunner_set_fork_status(runner, CK_NOFORK);
#endif
    srunner_run_all(runner, CK_NORMAL);
    watch_over(); /* a test that failed did not get that far */
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed;
}
