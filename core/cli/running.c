/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/running.h"

#include <stdatomic.h>

#include "core/cli/output.h"
#include "core/cli/signals.h"

/* Handlers run on this thread alone (thread_create): none is under way when running_end() is. */
static _Atomic(struct engine *) running;
static const char *_Atomic stopping_line;

/* Inside the handler: only what is safe there. */
static void on_signal(void)
{
    struct engine *e = atomic_load(&running);
    const char *line = atomic_load(&stopping_line);
    if (e != NULL) {
        engine_interrupt(e);
    }
    if (line != NULL) {
        signals_say(e != NULL ? line : "k3ring: stopping soon; once more to stop at once\n");
    }
}

void running_catch(const char *line)
{
    atomic_store(&stopping_line, line);
    signals_catch(on_signal, output_remove_temporaries);
}

void running_begin(struct engine *e)
{
    atomic_store(&running, e);
    if (signals_caught() != 0) {
        engine_interrupt(e);
    }
}

void running_end(void)
{
    atomic_store(&running, NULL);
}
