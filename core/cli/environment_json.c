/* SPDX-License-Identifier: Apache-2.0 */
/* The environment as an object of a report. What is unknown is null. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/cli/environment_priv.h"

static void number(cJSON *object, const char *name, uint64_t value)
{
    cJSON_AddNumberToObject(object, name, (double)value);
}

static void number_if(bool known, cJSON *object, const char *name, uint64_t value)
{
    if (known) {
        number(object, name, value);
    } else {
        cJSON_AddNullToObject(object, name);
    }
}

/* 0 is not known. */
static void number_known(cJSON *object, const char *name, uint64_t value)
{
    number_if(value > 0, object, name, value);
}

/* Below 0 is not known. */
static void number_from_zero(cJSON *object, const char *name, int64_t value)
{
    number_if(value >= 0, object, name, (uint64_t)value);
}

static void text(cJSON *object, const char *name, const char *value)
{
    if (value[0] != '\0') {
        cJSON_AddStringToObject(object, name, value);
    } else {
        cJSON_AddNullToObject(object, name);
    }
}

static void limit(cJSON *object, const char *name, uint64_t value)
{
    if (value == ENVIRONMENT_UNLIMITED) {
        cJSON_AddStringToObject(object, name, "unlimited");
    } else {
        number(object, name, value);
    }
}

static void add_cpu(cJSON *parent, const struct environment_system *s)
{
    cJSON *cpu = cJSON_AddObjectToObject(parent, "cpu");
    text(cpu, "model", s->cpu);
    text(cpu, "features", s->features);
    number(cpu, "processors", s->processors);
    number(cpu, "numa_nodes", s->numa_nodes);
}

static void add_memory(cJSON *parent, const struct environment_system *s)
{
    cJSON *mem = cJSON_AddObjectToObject(parent, "mem");
    number_known(mem, "total_bytes", s->memory_bytes);
    limit(mem, "available_bytes", s->available_bytes);
    text(mem, "limited_by", s->available_why);
    number(mem, "huge_free_bytes", s->huge_free_bytes);
}

/* One value of every place, those that are equal once. */
static void join(cJSON *parent, const char *name, const struct environment *env, size_t offset)
{
    char all[ENVIRONMENT_TEXT_BYTES * 4] = "";
    for (uint32_t i = 0; i < env->place_count; i++) {
        const char *one = (const char *)&env->place[i] + offset;
        size_t used = strlen(all);
        if (strstr(all, one) == NULL) {
            snprintf(all + used, sizeof all - used, "%s%s", used > 0 ? " + " : "", one);
        }
    }
    text(parent, name, all);
}

/* Of the devices that have a bit. */
static void add_names(cJSON *array, const struct environment *env, uint32_t bits)
{
    for (uint32_t i = 0; i < env->device_count; i++) {
        if ((bits >> i & 1) != 0) {
            cJSON_AddItemToArray(array, cJSON_CreateString(env->device[i].name));
        }
    }
}

static void add_place(cJSON *array, const struct environment *env,
                      const struct environment_place *p)
{
    cJSON *one = cJSON_CreateObject();
    text(one, "fs", p->file_system);
    text(one, "mount_opts", p->options);
    text(one, "source", p->source);
    text(one, "lower", p->lower);
    cJSON_AddStringToObject(one, "nature", environment_nature_name(p->nature));
    text(one, "device", p->top != ENVIRONMENT_NONE ? env->device[p->top].name : "");
    add_names(cJSON_AddArrayToObject(one, "other_devices"), env, p->others);
    number(one, "files", p->files);
    number(one, "direct_files", p->direct_files);
    number(one, "alignment", p->alignment);
    number(one, "bytes", p->bytes);
    number(one, "holes_bytes", p->holes_bytes);
    cJSON_AddBoolToObject(one, "compressed", p->compressed);
    cJSON_AddBoolToObject(one, "encrypted", p->encrypted);
    cJSON_AddItemToArray(array, one);
}

static void add_link(cJSON *one, const struct environment_device *d)
{
    text(one, "link_speed", d->link.speed);
    number_known(one, "link_width", d->link.width);
    text(one, "link_speed_max", d->link_max.speed);
    number_known(one, "link_width_max", d->link_max.width);
    number_known(one, "link_bw_bytes", d->link.bytes_per_s);
}

static void add_queue(cJSON *one, const struct environment_device *d)
{
    number_known(one, "max_sectors_kb", d->max_sectors_kb);
    number_known(one, "max_hw_sectors_kb", d->max_hw_sectors_kb);
    number_known(one, "max_segments", d->max_segments);
    number_known(one, "nr_requests", d->nr_requests);
    text(one, "scheduler", d->scheduler);
    number_from_zero(one, "wbt", d->wbt_us);
    number_from_zero(one, "io_poll", d->io_poll);
    number_from_zero(one, "rotational", d->rotational);
    number_known(one, "logical_block_size", d->logical_block_bytes);
    number_known(one, "physical_block_size", d->physical_block_bytes);
}

static void add_device(cJSON *array, const struct environment *env, uint32_t index)
{
    const struct environment_device *d = &env->device[index];
    double celsius = environment_device_temperature(env, index);
    cJSON *one = cJSON_CreateObject();
    text(one, "name", d->name);
    cJSON_AddStringToObject(one, "kind", environment_kind_name(d->kind));
    text(one, "model", d->model);
    text(one, "fw", d->firmware);
    text(one, "serial", d->serial);
    add_names(cJSON_AddArrayToObject(one, "on"), env, d->below);
    add_link(one, d);
    add_queue(one, d);
    text(one, "cgroup_io_max", d->io_max);
    if (isnan(celsius)) {
        cJSON_AddNullToObject(one, "temp_c");
    } else {
        cJSON_AddNumberToObject(one, "temp_c", celsius);
    }
    if (isnan(d->too_hot_c)) {
        cJSON_AddNullToObject(one, "temp_c_too_hot");
    } else {
        cJSON_AddNumberToObject(one, "temp_c_too_hot", d->too_hot_c);
    }
    cJSON_AddItemToArray(array, one);
}

static void add_limits(cJSON *o, const struct environment_system *s)
{
    text(o, "thp", s->thp);
    limit(o, "memlock", s->memlock_bytes);
    limit(o, "nofile", s->nofile);
    number_from_zero(o, "io_uring_disabled", s->io_uring_disabled);
    number_from_zero(o, "seccomp", s->seccomp);
}

/* What holds for all files and devices together. */
static void add_sums(cJSON *o, const struct environment *env)
{
    char io_max[ENVIRONMENT_TEXT_BYTES * 2] = "";
    uint64_t holes = 0;
    bool compressed = false;
    bool crypt = false;
    for (uint32_t i = 0; i < env->place_count; i++) {
        holes += env->place[i].holes_bytes;
        compressed = compressed || env->place[i].compressed;
    }
    for (uint32_t i = 0; i < env->device_count; i++) {
        const struct environment_device *d = &env->device[i];
        size_t used = strlen(io_max);
        crypt = crypt || d->kind == DEVICE_CRYPT;
        if (d->io_max[0] != '\0') {
            snprintf(io_max + used, sizeof io_max - used, "%s%s %s", used > 0 ? "; " : "", d->name,
                     d->io_max);
        }
    }
    text(o, "cgroup_io_max", io_max);
    number(o, "holes_bytes", holes);
    cJSON_AddBoolToObject(o, "dm_crypt", crypt);
    cJSON_AddBoolToObject(o, "compressed", compressed);
}

cJSON *environment_json(cJSON *parent, const struct environment *env)
{
    cJSON *o = cJSON_AddObjectToObject(parent, "environment");
    text(o, "kernel", env->system.kernel);
    add_cpu(o, &env->system);
    add_memory(o, &env->system);
    join(o, "fs", env, offsetof(struct environment_place, file_system));
    join(o, "mount_opts", env, offsetof(struct environment_place, options));
    cJSON *places = cJSON_AddArrayToObject(o, "file_systems");
    for (uint32_t i = 0; i < env->place_count; i++) {
        add_place(places, env, &env->place[i]);
    }
    cJSON *devices = cJSON_AddArrayToObject(o, "devices");
    for (uint32_t i = 0; i < env->device_count; i++) {
        add_device(devices, env, i);
    }
    add_limits(o, &env->system);
    add_sums(o, env);
    return o;
}

void environment_gates_json(cJSON *parent, const char *name,
                            const struct environment_gate *gates, uint32_t count)
{
    cJSON *array = cJSON_AddArrayToObject(parent, name);
    for (uint32_t i = 0; i < count; i++) {
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "code", gates[i].code);
        cJSON_AddStringToObject(one, "severity",
                                gates[i].severity == GATE_INVALID ? "invalid" : "warning");
        cJSON_AddStringToObject(one, "reason", gates[i].reason);
        cJSON_AddItemToArray(array, one);
    }
}
