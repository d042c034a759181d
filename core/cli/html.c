/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/html.h"

#include "core/base/err.h"
#include "core/cli/text.h"

/* The policy makes sure that no browser loads anything, whatever stands in the page. */
static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" "
    "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n";

static const char style[] =
    "<style>\n"
    ":root { color-scheme: light dark; --paper: #fff; --ink: #1c2128; --faint: #57606a;\n"
    "  --line: #d0d7de; --soft: #f4f6f8; --good: #116329; --bad: #a40e26; }\n"
    "@media (prefers-color-scheme: dark) { :root { --paper: #14181d; --ink: #e3e8ee;\n"
    "  --faint: #9aa5b1; --line: #3a434d; --soft: #1d2329; --good: #5bd075; --bad: #ff8d86; } }\n"
    "body { margin: 0 auto; padding: 1rem; max-width: 75rem; background: var(--paper);\n"
    "  color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }\n"
    "h1 { font-size: 1.6rem; line-height: 1.25; margin: .5rem 0 1rem; }\n"
    "h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; padding-bottom: .2rem;\n"
    "  border-bottom: 1px solid var(--line); }\n"
    ".box { overflow-x: auto; margin: .8rem 0 1.2rem; }\n"
    "table { border-collapse: collapse; font-variant-numeric: tabular-nums; }\n"
    "caption { text-align: left; color: var(--faint); padding: .2rem 0; }\n"
    "th, td { padding: .3rem .8rem; border-bottom: 1px solid var(--line); text-align: right;\n"
    "  white-space: nowrap; vertical-align: top; overflow-wrap: break-word; }\n"
    "th { background: var(--soft); font-weight: 600; }\n"
    ".text { text-align: left; white-space: normal; min-width: 6rem; max-width: 32rem; }\n"
    "tr.good td { color: var(--good); } tr.bad td { color: var(--bad); }\n"
    "tr.good td, tr.bad td { font-weight: 600; }\n"
    ".note { margin: .8rem 0; padding: .6rem .9rem; border: 1px solid var(--line);\n"
    "  border-left-width: .35rem; background: var(--soft); border-radius: .25rem; }\n"
    ".note.good { border-color: var(--good); } .note.bad { border-color: var(--bad); }\n"
    "pre { margin: 0; padding: .8rem; background: var(--soft); border: 1px solid var(--line);\n"
    "  border-radius: .25rem; width: max-content; min-width: calc(100% - 1.7rem);\n"
    "  font: .85rem/1.45 ui-monospace, monospace; white-space: pre; overflow-wrap: normal; }\n"
    "figure { margin: 1rem 0 1.4rem; }\n"
    "figure .box { margin: 0; background: #fff; border: 1px solid var(--line);\n"
    "  border-radius: .25rem; }\n"
    "figure svg { display: block; width: 100%; min-width: 40rem; height: auto; }\n"
    "figcaption { color: var(--faint); font-size: .9rem; padding-top: .3rem; }\n"
    "</style>\n";

static void put(const struct html *page, const char *text)
{
    static const struct text_rule rules[] = {
        {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
    text_put(page->out.file, text, rules, countof(rules), true);
}

static void put_tagged(const struct html *page, const char *begin, const char *text,
                       const char *end)
{
    fputs(begin, page->out.file);
    put(page, text);
    fputs(end, page->out.file);
}

static const char *tone_class(enum html_tone tone)
{
    return tone == HTML_GOOD ? "good" : tone == HTML_BAD ? "bad" : "";
}

int html_open(struct html *page, const char *path, const char *title)
{
    *page = (struct html){.columns = 0};
    TRY(output_open(&page->out, path));
    fputs(head, page->out.file);
    put_tagged(page, "<title>", title, "</title>\n");
    fputs(style, page->out.file);
    put_tagged(page, "</head>\n<body>\n<main>\n<h1>", title, "</h1>\n");
    return 0;
}

static void end_section(struct html *page)
{
    assert(page->columns == 0);
    if (page->section) {
        fputs("</section>\n", page->out.file);
    }
    page->section = false;
}

int html_close(struct html *page)
{
    end_section(page);
    fputs("</main>\n</body>\n</html>\n", page->out.file);
    return output_commit(&page->out);
}

void html_abandon(struct html *page)
{
    output_abandon(&page->out);
}

void html_section(struct html *page, const char *heading)
{
    end_section(page);
    page->section = true;
    put_tagged(page, "<section>\n<h2>", heading, "</h2>\n");
}

void html_paragraph(struct html *page, const char *text)
{
    put_tagged(page, "<p>", text, "</p>\n");
}

void html_note(struct html *page, enum html_tone tone, const char *text)
{
    fprintf(page->out.file, "<p class=\"note %s\">", tone_class(tone));
    put_tagged(page, "", text, "</p>\n");
}

/* A cell, or a head of a column when tag is th. */
static void put_cell(const struct html *page, uint32_t column, const char *tag, const char *text)
{
    bool is_text = (page->text_columns >> column & 1U) != 0;
    fprintf(page->out.file, "<%s%s%s>", tag, is_text ? " class=\"text\"" : "",
            tag[1] == 'h' ? " scope=\"col\"" : "");
    put(page, text != NULL ? text : "");
    fprintf(page->out.file, "</%s>", tag);
}

void html_table_begin(struct html *page, const char *caption, const char *const *heads,
                      uint32_t columns, uint64_t text_columns)
{
    assert(page->columns == 0 && columns > 0 && columns <= 64);
    page->columns = columns;
    page->text_columns = text_columns;
    fputs("<div class=\"box\" tabindex=\"0\">\n<table>\n", page->out.file);
    if (caption != NULL) {
        put_tagged(page, "<caption>", caption, "</caption>\n");
    }
    fputs("<thead><tr>", page->out.file);
    for (uint32_t i = 0; i < columns; i++) {
        put_cell(page, i, "th", heads[i]);
    }
    fputs("</tr></thead>\n<tbody>\n", page->out.file);
}

void html_table_row(struct html *page, const char *const *cells, enum html_tone tone)
{
    assert(page->columns > 0);
    fprintf(page->out.file, "<tr class=\"%s\">", tone_class(tone));
    for (uint32_t i = 0; i < page->columns; i++) {
        put_cell(page, i, "td", cells[i]);
    }
    fputs("</tr>\n", page->out.file);
}

void html_table_end(struct html *page)
{
    assert(page->columns > 0);
    page->columns = 0;
    fputs("</tbody>\n</table>\n</div>\n", page->out.file);
}

void html_preformatted(struct html *page, const char *text)
{
    put_tagged(page, "<div class=\"box\" tabindex=\"0\"><pre>", text, "</pre></div>\n");
}

void html_svg(struct html *page, const char *svg, const char *caption)
{
    fputs("<figure>\n", page->out.file);
    if (svg != NULL) {
        fprintf(page->out.file, "<div class=\"box\" tabindex=\"0\">%s</div>\n", svg);
    } else {
        fputs("<p class=\"note \">No picture: gnuplot was not there to draw it.</p>\n",
              page->out.file);
    }
    if (caption != NULL) {
        put_tagged(page, "<figcaption>", caption, "</figcaption>\n");
    }
    fputs("</figure>\n", page->out.file);
}
