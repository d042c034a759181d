/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_HTML_H
#define CLI_HTML_H

/* One HTML page that needs nothing else: no script, no font, no file, no network. Wide tables and
 * reports scroll in a box of their own, pictures shrink, colours follow the reader's choice of
 * light or dark. Every text is escaped; only html_svg takes markup. Calls go in reading order,
 * between html_open and html_close; a failed write shows at the end. */

#include <stdio.h>

#include "core/cli/output.h"

struct html {
    struct output out;
    uint32_t columns;      /* of the open table; 0 = none is open */
    uint64_t text_columns; /* bit i: column i holds text, set to the left */
    bool section;          /* one is open */
};

/* The look of a line that stands out. */
enum html_tone { HTML_PLAIN, HTML_GOOD, HTML_BAD };

/* The page appears at path when html_close succeeds, whole. ERR_OUTPUT, ERR_MEMORY. */
int html_open(struct html *page, const char *path, const char *title);
int html_close(struct html *page);
void html_abandon(struct html *page); /* also after html_close, or on a zeroed struct */

void html_section(struct html *page, const char *heading);
void html_paragraph(struct html *page, const char *text);
/* A verdict or a warning, in a coloured frame. */
void html_note(struct html *page, enum html_tone tone, const char *text);

/* A table: begin, rows, end. caption and single cells may be NULL. Columns of the mask (bit i is
 * column i, at most 64) are text; the others are numbers, set to the right. */
void html_table_begin(struct html *page, const char *caption, const char *const *heads,
                      uint32_t columns, uint64_t text_columns);
void html_table_row(struct html *page, const char *const *cells, enum html_tone tone);
void html_table_end(struct html *page);

/* Text as it would stand on a terminal. */
void html_preformatted(struct html *page, const char *text);

/* svg: what picture_svg_inline gave; NULL puts a line that there is no picture. */
void html_svg(struct html *page, const char *svg, const char *caption);

#endif
