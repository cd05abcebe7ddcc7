"""One change of each kind that a minor may make, as edits of the headers: what is shown to be possible before 1.0 is
frozen. And changes that no minor may make."""

MINOR = ("lazyt/base.h", "#define LAZYT_ABI_MINOR 0", "#define LAZYT_ABI_MINOR 1")

BUFFER_END = "  void (*release)(lazyt_buffer_t *buffer); /* [any] NULL allowed */\n} lazyt_plugin_buffer_t;"
ARGS_END = "  lazyt_events_t waits;\n} lazyt_execute_args_t;"
REASON_END = "#define LAZYT_REASON_COST ((lazyt_reason_t)9)     /* the host is faster */\n"
TRIM = "lazyt_status_t *(*trim)(lazyt_device_t *device);"

# kind -> edits (file, old, new) of the headers
CHANGES = {
    "slot": [
        (
            "lazyt/buffer.h",
            BUFFER_END,
            BUFFER_END.replace(
                "} lazyt_plugin",
                "  /* Optional, since minor 1. The bytes are wanted soon. [any] */\n"
                "  lazyt_status_t *(*prefetch)(lazyt_buffer_t *buffer);\n} lazyt_plugin",
            ),
        )
    ],
    "field": [
        (
            "lazyt/executable.h",
            ARGS_END,
            ARGS_END.replace(
                "} lazyt", "  uint64_t priority; /* since minor 1; higher goes first */\n} lazyt"
            ),
        )
    ],
    "enum": [
        (
            "lazyt/capability.h",
            REASON_END,
            REASON_END + "#define LAZYT_REASON_POWER ((lazyt_reason_t)10) /* since minor 1 */\n",
        )
    ],
    "extension": [
        (
            "lazyt/buffer.h",
            "#endif /* LAZYT_BUFFER_H_ */",
            '#define LAZYT_EXTENSION_DRILL "lazyt.drill/1"\n'
            "typedef struct lazyt_drill_t {\n"
            "  uint64_t struct_size;\n  const lazyt_chained_t *next;\n"
            "  uint32_t (*answer)(uint32_t question);\n"
            "} lazyt_drill_t;\n\n#endif /* LAZYT_BUFFER_H_ */",
        )
    ],
    # A slot that is better done otherwise stays where it is; its successor is a new one.
    "deprecation": [
        (
            "lazyt/device.h",
            "} lazyt_plugin_device_t;",
            "  /* Optional, since minor 1; in place of trim, which hosts of it call no more where this is there. */\n"
            "  lazyt_status_t *(*trim_to)(lazyt_device_t *device, uint64_t bytes);\n} lazyt_plugin_device_t;",
        )
    ],
}

# What a minor must not do (file, old, new), and what the tool says of it.
FORBIDDEN = {
    "a slot in the middle": (
        "lazyt/device.h",
        "  lazyt_status_t *(*count)(uint32_t *out_count);",
        "  void (*early)(void);\n  lazyt_status_t *(*count)(uint32_t *out_count);",
        "lazyt_plugin_device_t: 'count' was at 16, 8 bytes, and is at 24, 8 bytes",
    ),
    "a slot that goes": (
        "lazyt/event.h",
        "  void (*retain)(lazyt_event_t *event);\n",
        "",
        "lazyt_plugin_event_t: 'retain' was",
    ),
    "a field of another size": (
        "lazyt/buffer.h",
        "  uint32_t memory_space;",
        "  uint16_t memory_space, more;",
        "lazyt_buffer_desc_t: 'memory_space' was at 32, 4 bytes, and is at 32, 2 bytes",
    ),
    "an enum's value": (
        "lazyt/capability.h",
        "#define LAZYT_ANSWER_TAKE ((lazyt_answer_kind_t)1)",
        "#define LAZYT_ANSWER_TAKE ((lazyt_answer_kind_t)3)",
        "LAZYT_ANSWER_TAKE was 1 and is 3",
    ),
    "an enum's value that goes": (
        "lazyt/capability.h",
        "#define LAZYT_REASON_COST ((lazyt_reason_t)9)     /* the host is faster */\n",
        "",
        "LAZYT_REASON_COST was 9 and is gone",
    ),
    "a longer struct that is passed by value": (
        "lazyt/buffer.h",
        "} lazyt_events_t;",
        "  uint64_t more;\n} lazyt_events_t;",
        "lazyt_events_t: has no struct_size and no stride: it can never grow",
    ),
}
