# k3ring: one flat build. `make` leaves build/k3ring; V=1 shows the commands.
#   make test | test-oracle | asan | tsan | tsan-quick | fuzz | soak | bench | tidy | analyze | demo | clean
#   make install DESTDIR= PREFIX= | uninstall DESTDIR= PREFIX= | deb
#   make nightly | valgrind | real-faults, memory-grid (as root)
ifeq ($(origin CC),default)
CC       := gcc
endif
BUILD    ?= build
PREFIX   ?= /usr/local
SANITIZE ?=
OPTIMIZE ?= -O2 -g
Q        := $(if $(V),,@)

WARN     := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wformat-security -Werror
HARDEN   := -fPIE -fstack-protector-strong -fstack-clash-protection -fcf-protection
CFLAGS   += -std=c11 -D_GNU_SOURCE $(OPTIMIZE) $(WARN) -ffp-contract=off -fno-math-errno \
            -pthread $(HARDEN)
CPPFLAGS += -I.
LDFLAGS  += -pthread -pie -Wl,-z,relro,-z,now,-z,noexecstack
LIBS     := -luring -lcjson -lnettle -lxxhash -lpcre2-8 -ledit -lm
# jemalloc or libc. Sanitizers bring their own, and their own flags.
ALLOCATOR ?= jemalloc
ifeq ($(filter jemalloc libc,$(ALLOCATOR)),)
$(error ALLOCATOR is jemalloc or libc, not $(ALLOCATOR))
endif
ifeq ($(SANITIZE)$(filter jemalloc,$(ALLOCATOR)),jemalloc)
LIBS     += -ljemalloc
CPPFLAGS += -DK3RING_JEMALLOC
endif
ifeq ($(SANITIZE),)
CPPFLAGS += -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 # the C library takes less where it must
else
CFLAGS   += -fsanitize=$(SANITIZE) -fno-omit-frame-pointer -fno-sanitize-recover=all
LDFLAGS  += -fsanitize=$(SANITIZE)
CPPFLAGS += -DK3RING_DEBUG -DK3RING_SANITIZED
endif

ifeq ($(NIGHTLY),1)
CPPFLAGS += -DK3RING_NIGHTLY
endif

LIB_SRC  := $(wildcard core/base/*.c core/model/*.c core/exec/*.c io/*.c kernels/*.c cache/*.c planner/*.c)
CLI_SRC  := $(filter-out core/cli/main%,$(wildcard core/cli/*.c))
UNIT_SRC := $(wildcard tests/unit/*_test.c)
TEST_SRC := $(wildcard tests/*_test.c)
HELP_SRC := $(wildcard tests/support/*.c)
BENCH_SRC := $(wildcard bench/*_bench.c)
BENCH_HELP := tests/support/kernels_compare.c tests/support/trace_model.c \
              tests/support/vocabulary.c \
              $(filter-out %_bench.c,$(wildcard bench/*.c))

# Test programs below which calls can fail: the linker leads these calls through tests/faults.
FAULT_TESTS := ring_fault_test setup_fault_test
FAULT_SRC   := $(wildcard tests/faults/*.c)
FAULT_CALLS := malloc calloc realloc aligned_alloc strdup open fcntl pread fstat stat statx \
               opendir fopen realpath lseek read __pread_chk __read_chk __realpath_chk mmap mprotect madvise eventfd getrlimit setrlimit \
               pthread_create $(addprefix io_uring_,register_ring_fd ring_dontfork register_files \
               register_buffers_sparse register_buffers_update_tag get_probe_ring \
               queue_init_params peek_batch_cqe submit submit_and_get_events \
               submit_and_wait_timeout)

obj      = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
LIB      := $(BUILD)/libk3ring.a
CLI_LIB  := $(BUILD)/libcli.a
UNIT     := $(patsubst tests/unit/%.c,$(BUILD)/tests/unit/%,$(UNIT_SRC))
TESTS    := $(patsubst tests/%.c,$(BUILD)/tests/%,$(TEST_SRC))
BENCHES  := $(patsubst bench/%.c,$(BUILD)/bench/%,$(BENCH_SRC))
MAN      := $(patsubst docs/%.txt,$(BUILD)/%.1,$(wildcard docs/man/*.txt))
PAGES    := $(MAN) $(BUILD)/completion/bash $(BUILD)/completion/zsh
CHECK_LIBS := $(shell pkg-config --libs check 2>/dev/null)

all: $(BUILD)/k3ring

$(BUILD)/k3ring: $(call obj,core/cli/main.c) $(CLI_LIB) $(LIB)
	@echo "  LINK $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

$(LIB): $(call obj,$(LIB_SRC))
	@echo "  AR   $@"
	$(Q)rm -f $@ && ar rcs $@ $^

$(CLI_LIB): $(call obj,$(CLI_SRC))
	@echo "  AR   $@"
	$(Q)rm -f $@ && ar rcs $@ $^

$(BUILD)/obj/kernels/avx2.o $(BUILD)/obj/kernels/avx2_%.o: CFLAGS += -mavx2 -mfma
$(BUILD)/obj/kernels/avx512.o $(BUILD)/obj/kernels/avx512_%.o: CFLAGS += -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma

# The AVX-512 source over an emulation; instrumenting that one object takes minutes, so it is not.
$(BUILD)/obj/tests/unit/kernels_avx512_emulated_test.o: CFLAGS += -mavx2 -mfma -Wno-psabi -fno-sanitize=all

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC   $<"
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(call obj,$(HELP_SRC)) $(CLI_LIB) $(LIB)
	@mkdir -p $(@D)
	@echo "  LINK $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(CHECK_LIBS) $(LIBS)

FAULT_BIN := $(addprefix $(BUILD)/tests/,$(FAULT_TESTS))
comma     := ,
$(FAULT_BIN): $(call obj,$(FAULT_SRC))
$(FAULT_BIN): LDFLAGS += $(addprefix -Wl$(comma)--wrap=,$(FAULT_CALLS))

$(BUILD)/bench/%: $(BUILD)/obj/bench/%.o $(call obj,$(BENCH_HELP)) $(CLI_LIB) $(LIB)
	@mkdir -p $(@D)
	@echo "  LINK $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

# Manual and completions are made of the option tables by a program that has them.
$(BUILD)/pages: $(call obj,core/cli/main_pages.c) $(CLI_LIB) $(LIB)
	@echo "  LINK $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

$(BUILD)/man/%.1: docs/man/%.txt $(BUILD)/pages
	@mkdir -p $(@D)
	@echo "  MAN  $@"
	$(Q)$(BUILD)/pages man $* < $< > $@.tmp && mv $@.tmp $@

$(BUILD)/completion/%: $(BUILD)/pages
	@mkdir -p $(@D)
	@echo "  TAB  $@"
	$(Q)$(BUILD)/pages $* > $@.tmp && mv $@.tmp $@

pages: $(PAGES)

tests: $(UNIT) $(TESTS) $(BUILD)/k3ring $(PAGES)

# LEAVE="NAME unit/NAME ...": programs not to run, without _test.
LEAVE     :=
LEFT      := $(patsubst %,$(BUILD)/tests/%_test,$(LEAVE))
RUN_TESTS := $(filter-out $(LEFT),$(UNIT) $(TESTS))
ifneq ($(filter-out $(UNIT) $(TESTS),$(LEFT)),)
$(error LEAVE: there is no $(filter-out $(UNIT) $(TESTS),$(LEFT)))
endif

test: tests
	$(if $(LEAVE),@echo "not run here: $(sort $(LEAVE))")
	$(Q)BUILD=$(BUILD) CC="$(CC)" sh tests/run.sh $(RUN_TESTS)

# What takes too long for every change: all there is to try, whole suites under sanitizers, more
# seeds, more mixed faults.
NIGHTLY_SEEDS ?= 10000
NIGHTLY_FAULTS ?= 2000
nightly:
	$(Q)$(MAKE) --no-print-directory test BUILD=$(BUILD)/nightly NIGHTLY=1
	$(BUILD)/nightly/tests/seeds_test $(NIGHTLY_SEEDS)
	$(BUILD)/nightly/tests/ring_fault_test $(NIGHTLY_FAULTS)
	$(Q)$(MAKE) --no-print-directory asan
	$(Q)$(MAKE) --no-print-directory tsan

# File systems, limits and kernels as they really are; needs root and says what it cannot try.
FUSE_LIBS := $(shell pkg-config --libs fuse3 2>/dev/null)
REAL_TOOLS := refuse $(if $(FUSE_LIBS),faultfs)
real-faults: $(BUILD)/k3ring $(addprefix $(BUILD)/tests/tools/,$(REAL_TOOLS))
	$(Q)BUILD=$(BUILD) sh tests/real_faults.sh

# Every command from its floor to all resident, freely and in control groups; needs root.
memory-grid: $(BUILD)/k3ring $(BUILD)/tests/tools/peak
	$(Q)BUILD=$(BUILD) sh tests/memory_grid.sh

$(BUILD)/tests/tools/%: $(BUILD)/obj/tests/tools/%.o
	@mkdir -p $(@D)
	@echo "  LINK $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(TOOL_LIBS)

$(BUILD)/obj/tests/tools/faultfs.o: CPPFLAGS += $(shell pkg-config --cflags fuse3 2>/dev/null)
$(BUILD)/tests/tools/faultfs: TOOL_LIBS := $(FUSE_LIBS)

test-oracle: $(BUILD)/k3ring
	$(Q)BUILD=$(BUILD) sh tests/oracle/run.sh

asan:
	$(Q)$(MAKE) --no-print-directory test BUILD=$(BUILD)/asan SANITIZE=address,undefined OPTIMIZE="-O1 -g"

tsan:
	$(Q)$(MAKE) --no-print-directory test BUILD=$(BUILD)/tsan SANITIZE=thread OPTIMIZE="-O2 -g"

# For every change: the thread sanitizer over what has threads. Left to the nightly run are unit
# tests of one thread, programs that start the command again and again, whose threads are those of
# the engine and of the bench, and those that ask what files may hold.
THREADED := crew err figures io io_lane model picture progress queue reader report safetensors slab \
            slab_ring synth tokenizer tune watch
ONE_THREAD := $(filter-out $(THREADED:%=unit/%),$(UNIT_SRC:tests/%_test.c=%)) reference
STARTERS := batch_cli bench bench_export bench_fio chat_cli chat_terminal choice cli compare_cli doctor \
            chat_input elf ends first_run habit memory pages prompt record replay replay_device score state_cli \
            symptom terminal tokenize trained tuning verify
FILES_ASK := pack pack_grid pack_hostile pack_resume paranoid
tsan-quick:
	$(Q)$(MAKE) --no-print-directory tsan LEAVE="$(ONE_THREAD) $(STARTERS) $(FILES_ASK)"

# Every command under memcheck; with the allocator of the C library, which valgrind replaces.
valgrind:
	$(Q)$(MAKE) --no-print-directory $(BUILD)/valgrind/k3ring BUILD=$(BUILD)/valgrind ALLOCATOR=libc
	$(Q)BUILD=$(BUILD)/valgrind sh tests/valgrind.sh

# Harnesses of libFuzzer, which clang brings; FUZZ_SECONDS each.
FUZZ_SECONDS ?= 10
FUZZ_CC  ?= clang
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
FUZZERS  := $(patsubst tests/fuzz/fuzz_%.c,$(BUILD)/fuzz/%,$(FUZZ_SRC))

$(BUILD)/fuzz/%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(call obj,tests/fuzz/fuzz.c $(HELP_SRC)) $(CLI_LIB) $(LIB)
	@mkdir -p $(@D)
	@echo "  LINK $@"
	$(Q)$(CC) $(LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(CHECK_LIBS) $(LIBS)

fuzzers: $(FUZZERS)

fuzz: $(BUILD)/k3ring
	$(Q)$(MAKE) --no-print-directory fuzzers CC="$(FUZZ_CC)" BUILD=$(BUILD)/fuzzing \
	    SANITIZE=fuzzer-no-link,address,undefined OPTIMIZE="-O1 -g"
	$(Q)FUZZ_SECONDS=$(FUZZ_SECONDS) BUILD=$(BUILD) sh tests/fuzz/run.sh

soak: $(BUILD)/tests/soak
	$(Q)$< $(SOAK_TOKENS)

tidy: $(BUILD)/tests/unit/tidy_test
	$(Q)$<

bench: $(BENCHES) $(BUILD)/k3ring
	$(Q)BUILD=$(BUILD) sh bench/run.sh

# Every file of an installation, once: what install copies, uninstall removes.
SHARE    := $(PREFIX)/share
BASH_TAB := $(SHARE)/bash-completion/completions
ZSH_TAB  ?= $(SHARE)/zsh/site-functions
DOC_DIR  := $(SHARE)/doc/k3ring
DOC_SRC  := README.md LICENSE $(filter-out docs/README.md,$(wildcard docs/*.md))

# The small trained model tells a story; the report of the run follows. 1281 and 1282 end one.
demo: $(BUILD)/k3ring
	$(Q)$< run tests/model --prompt 'There once was' --gen 200 --stop 1281,1282

install: $(BUILD)/k3ring $(PAGES)
	install -d $(addprefix $(DESTDIR),$(PREFIX)/bin $(SHARE)/man/man1 $(BASH_TAB) $(ZSH_TAB) \
		$(DOC_DIR))
	install -m 755 $(BUILD)/k3ring $(DESTDIR)$(PREFIX)/bin/k3ring
	install -m 644 $(MAN) $(DESTDIR)$(SHARE)/man/man1
	install -m 644 $(BUILD)/completion/bash $(DESTDIR)$(BASH_TAB)/k3ring
	install -m 644 $(BUILD)/completion/zsh $(DESTDIR)$(ZSH_TAB)/_k3ring
	install -m 644 $(DOC_SRC) $(DESTDIR)$(DOC_DIR)

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/k3ring
	rm -f $(addprefix $(DESTDIR)$(SHARE)/man/man1/,$(notdir $(MAN)))
	rm -f $(DESTDIR)$(BASH_TAB)/k3ring $(DESTDIR)$(ZSH_TAB)/_k3ring
	rm -f $(addprefix $(DESTDIR)$(DOC_DIR)/,$(notdir $(DOC_SRC)))
	[ ! -d $(DESTDIR)$(DOC_DIR) ] || rmdir --ignore-fail-on-non-empty $(DESTDIR)$(DOC_DIR)

deb: $(BUILD)/k3ring $(PAGES)
	$(Q)BUILD=$(BUILD) sh docs/packaging/deb.sh

# ---- static analysis: every finding is an error. What is left out, and why: .clang-tidy,
# docs/packaging/cppcheck.txt, and here.
ANALYZED  := $(filter core/% io/% cache/% planner/%,$(LIB_SRC)) $(wildcard core/cli/*.c)
ANALYZE_GCC ?= gcc
# Leaks: gcc 12 takes memory kept through a caller's pointer for lost, in some 40 places; the address
# sanitizer looks for real ones in every test.
NO_GCC    := -Wno-analyzer-malloc-leak -Wno-analyzer-file-leak

# clang-tidy takes seconds for each file where it follows every path; gcc follows the rest.
TIDY_PATHS := -Xclang -analyzer-config -Xclang max-nodes=20000

$(BUILD)/analyze/gcc/%.o: %.c
	@mkdir -p $(@D)
	@echo "  ANALYZE $<"
	$(Q)$(ANALYZE_GCC) $(CPPFLAGS) -DK3RING_ANALYZED $(CFLAGS) -fanalyzer $(NO_GCC) -MMD -MP -c -o $@ $<

$(BUILD)/analyze/tidy/%.ok: %.c .clang-tidy
	@mkdir -p $(@D)
	@echo "  TIDY $<"
	$(Q)clang-tidy --quiet $< -- $(CPPFLAGS) -DK3RING_ANALYZED $(CFLAGS) $(TIDY_PATHS) && touch $@

analyze-gcc: $(patsubst %.c,$(BUILD)/analyze/gcc/%.o,$(ANALYZED))

analyze-tidy: $(patsubst %.c,$(BUILD)/analyze/tidy/%.ok,$(ANALYZED))

analyze-cppcheck:
	@mkdir -p $(BUILD)/analyze/cppcheck
	@echo "  CPPCHECK"
	$(Q)cppcheck -q -j 2 --std=c11 --enable=warning,performance,portability --inline-suppr \
		--suppressions-list=docs/packaging/cppcheck.txt --error-exitcode=1 -I. -D_GNU_SOURCE \
		-DK3RING_JEMALLOC --cppcheck-build-dir=$(BUILD)/analyze/cppcheck $(ANALYZED)

analyze: analyze-gcc analyze-tidy analyze-cppcheck

clean:
	rm -rf $(BUILD)

-include $(shell find $(BUILD)/obj $(BUILD)/analyze -name '*.d' 2>/dev/null)

.PHONY: all pages tests soak fuzz fuzzers nightly real-faults memory-grid valgrind test test-oracle \
        asan tsan tsan-quick tidy bench \
        demo analyze analyze-gcc analyze-tidy analyze-cppcheck install uninstall deb clean
.SECONDARY:
