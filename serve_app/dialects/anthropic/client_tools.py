"""Tools that a client runs by a schema of Anthropic's, which it does not send: a model here needs it as the
parameters of a function. A call comes back as ``tool_use`` under the tool's own name.

The schemas are those that Anthropic documents and its clients check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from serve_app.dialects.anthropic.blocks import Tool
from serve_app.dialects.parameters import STRING, closed_object, one_of

INTEGER = {"type": "integer"}
LINES = {
    "type": "array",
    "items": INTEGER,
    "minItems": 2,
    "maxItems": 2,
    "description": "For `view`: first and last line, from 1 on; -1 is the last line of the file.",
}
POINT = {"type": "array", "items": INTEGER, "minItems": 2, "maxItems": 2}


def _described(kind: Mapping[str, Any], description: str) -> dict[str, Any]:
    return {**kind, "description": description}


def _bash(_: Tool) -> tuple[str, dict[str, Any]]:
    command = _described(STRING, "The command. Required unless `restart` is true.")
    restart = _described({"type": "boolean"}, "True: start the shell again.")
    about = "Runs a command in a bash session on the user's machine, which keeps its state between calls."
    return about, closed_object({"command": command, "restart": restart})


def _editor(commands: tuple[str, ...], inserted: str) -> Callable[[Tool], tuple[str, dict[str, Any]]]:
    """``inserted``: the field in which this version's ``insert`` has its text."""
    fields = {
        "command": one_of(*commands),
        "path": _described(STRING, "Absolute path of the file or directory."),
        "file_text": _described(STRING, "For `create`: the content of the file."),
        "old_str": _described(STRING, "For `str_replace`: the text to replace, which must be there once."),
        "new_str": _described(STRING, "For `str_replace`: the new text."),
        "insert_line": _described(
            INTEGER, f"For `insert`: `{inserted}` is put behind this line; 0: the top."
        ),
        "view_range": LINES,
    }
    about = "For `insert`: the text to insert."
    if inserted == "new_str":
        about = f"{fields['new_str']['description']} {about}"
    fields[inserted] = _described(STRING, about)
    schema = closed_object(fields, "command", "path")
    return lambda _: ("Views, creates and edits text files on the user's machine.", schema)


def _memory(_: Tool) -> tuple[str, dict[str, Any]]:
    fields = {
        "command": one_of("view", "create", "str_replace", "insert", "delete", "rename"),
        "path": _described(STRING, "The file or directory, for every command but `rename`."),
        "view_range": LINES,
        "file_text": _described(STRING, "For `create`: the content of the file."),
        "old_str": _described(STRING, "For `str_replace`: the text to replace."),
        "new_str": _described(STRING, "For `str_replace`: the new text."),
        "insert_line": _described(INTEGER, "For `insert`: the text is put behind this line."),
        "insert_text": _described(STRING, "For `insert`: the text to insert."),
        "old_path": _described(STRING, "For `rename`: the present path."),
        "new_path": _described(STRING, "For `rename`: the new path."),
    }
    about = (
        "Files below `/memories` that last beyond this conversation. View that directory before a task, and "
        "keep there what a later conversation needs."
    )
    return about, closed_object(fields, "command")


FIRST_ACTIONS = (
    "key",
    "type",
    "mouse_move",
    "left_click",
    "left_click_drag",
    "right_click",
    "middle_click",
    "double_click",
    "screenshot",
    "cursor_position",
)
MORE_ACTIONS = ("left_mouse_down", "left_mouse_up", "triple_click", "scroll", "hold_key", "wait")
ZOOM = "zoom"


def _computer(*actions: str) -> Callable[[Tool], tuple[str, dict[str, Any]]]:
    def described(tool: Tool) -> tuple[str, dict[str, Any]]:
        offered = [action for action in actions if action != ZOOM or tool.enable_zoom]
        fields: dict[str, Any] = {
            "action": one_of(*offered),
            "coordinate": _described(POINT, "x and y in pixels, from the top left corner of the screen."),
            "text": _described(STRING, "What to type, or the keys to press, such as `ctrl+s`."),
        }
        if "left_click_drag" in offered and "wait" in offered:
            fields["start_coordinate"] = _described(POINT, "For `left_click_drag`: where it begins.")
        if "scroll" in offered:
            fields["scroll_direction"] = one_of("up", "down", "left", "right")
            fields["scroll_amount"] = _described(INTEGER, "For `scroll`: clicks of the wheel.")
            fields["duration"] = _described({"type": "number"}, "For `hold_key` and `wait`: seconds.")
        if ZOOM in offered:
            corners = {**POINT, "minItems": 4, "maxItems": 4}
            fields["region"] = _described(corners, "For `zoom`: x and y of two opposite corners.")
        about = "Uses the mouse, the keyboard and the screen of the user's machine."
        if tool.display_width_px and tool.display_height_px:
            about += f" The screen has {tool.display_width_px} x {tool.display_height_px} pixels."
        return about, closed_object(fields, "action")

    return described


_OLD_EDITOR = _editor(("view", "create", "str_replace", "insert", "undo_edit"), "new_str")
_EDITOR = _editor(("view", "create", "str_replace", "insert"), "insert_text")

CLIENT_TOOLS: Mapping[str, Callable[[Tool], tuple[str, dict[str, Any]]]] = {
    "bash_20241022": _bash,
    "bash_20250124": _bash,
    "text_editor_20241022": _OLD_EDITOR,
    "text_editor_20250124": _OLD_EDITOR,
    "text_editor_20250429": _EDITOR,
    "text_editor_20250728": _EDITOR,
    "memory_20250818": _memory,
    "computer_20241022": _computer(*FIRST_ACTIONS),
    "computer_20250124": _computer(*FIRST_ACTIONS, *MORE_ACTIONS),
    "computer_20251124": _computer(*FIRST_ACTIONS, *MORE_ACTIONS, ZOOM),
}
"""Description and parameters by ``type``. Another version may have another schema, so it is refused."""
