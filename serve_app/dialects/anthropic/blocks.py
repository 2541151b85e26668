"""The types of a Messages request and of its blocks. Unknown fields (``cache_control``, ``citations``, …) are
accepted and ignored; a block of an unknown type is refused by its name."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]
PositiveInt = Annotated[int, msgspec.Meta(ge=1)]
Level = Annotated[float, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]


class Text(msgspec.Struct, frozen=True, tag="text"):
    text: str


class Base64Image(msgspec.Struct, frozen=True, tag="base64"):
    data: str
    media_type: str = "image/jpeg"

    @property
    def address(self) -> str:
        return f"data:{self.media_type};base64,{self.data}"


class ImageAt(msgspec.Struct, frozen=True, tag="url"):
    url: NonEmpty

    @property
    def address(self) -> str:
        return self.url


ImageSource = Base64Image | ImageAt


class Image(msgspec.Struct, frozen=True, tag="image"):
    source: ImageSource


class PlainText(msgspec.Struct, frozen=True, tag="text"):
    data: str


class DocumentContent(msgspec.Struct, frozen=True, tag="content"):
    content: str | list[Text | Image]


class Base64Document(msgspec.Struct, frozen=True, tag="base64"):
    """A PDF, which would have to be rendered."""


class DocumentAt(msgspec.Struct, frozen=True, tag="url"):
    pass


DocumentSource = PlainText | DocumentContent | Base64Document | DocumentAt


class Document(msgspec.Struct, frozen=True, tag="document"):
    source: DocumentSource

    @property
    def unread(self) -> str | None:
        """The kind of a source whose text is not known."""
        return {Base64Document: "base64", DocumentAt: "url"}.get(type(self.source))


class ToolReference(msgspec.Struct, frozen=True, tag="tool_reference"):
    """In the result of a search for tools: the request's ``tools`` has the tool itself."""

    tool_name: str


class SearchResult(msgspec.Struct, frozen=True, tag="search_result"):
    content: list[Text]
    title: str = ""
    source: str = ""


class ToolUse(msgspec.Struct, frozen=True, tag="tool_use"):
    id: NonEmpty
    name: NonEmpty
    input: dict[str, Any]


ResultBlock = Text | Image | Document | ToolReference | SearchResult


class ToolResult(msgspec.Struct, frozen=True, tag="tool_result"):
    tool_use_id: NonEmpty
    content: str | list[ResultBlock] | None = None
    is_error: bool | None = None


class Thinking(msgspec.Struct, frozen=True, tag="thinking"):
    """``signature`` holds the thoughts of a client that is not shown them."""

    thinking: str
    signature: str | None = None


class RedactedThinking(msgspec.Struct, frozen=True, tag="redacted_thinking"):
    """Only its sender can read it: it is left out."""


# What Anthropic's servers ran in a session that began there. It is left out: what the model made of it is
# there as text.


class ServerToolUse(msgspec.Struct, frozen=True, tag="server_tool_use"):
    pass


class WebSearchToolResult(msgspec.Struct, frozen=True, tag="web_search_tool_result"):
    pass


class WebFetchToolResult(msgspec.Struct, frozen=True, tag="web_fetch_tool_result"):
    pass


class CodeExecutionToolResult(msgspec.Struct, frozen=True, tag="code_execution_tool_result"):
    pass


class BashToolResult(msgspec.Struct, frozen=True, tag="bash_code_execution_tool_result"):
    pass


class EditorToolResult(msgspec.Struct, frozen=True, tag="text_editor_code_execution_tool_result"):
    pass


class ToolSearchToolResult(msgspec.Struct, frozen=True, tag="tool_search_tool_result"):
    pass


class MCPToolUse(msgspec.Struct, frozen=True, tag="mcp_tool_use"):
    pass


class MCPToolResult(msgspec.Struct, frozen=True, tag="mcp_tool_result"):
    pass


UserBlock = Text | Image | Document | SearchResult | ToolResult
AssistantBlock = (
    Text
    | Thinking
    | RedactedThinking
    | ToolUse
    | ServerToolUse
    | WebSearchToolResult
    | WebFetchToolResult
    | CodeExecutionToolResult
    | BashToolResult
    | EditorToolResult
    | ToolSearchToolResult
    | MCPToolUse
    | MCPToolResult
)


class UserTurn(msgspec.Struct, frozen=True, tag_field="role", tag="user"):
    content: str | list[UserBlock]


class AssistantTurn(msgspec.Struct, frozen=True, tag_field="role", tag="assistant"):
    content: str | list[AssistantBlock]


class SystemTurn(msgspec.Struct, frozen=True, tag_field="role", tag="system"):
    """Only its texts are read, by ``system_texts``. Its other blocks (``tool_addition``, ``tool_removal``, …)
    say which tools Anthropic's servers show from here on; here the request's ``tools`` are shown."""

    content: str | list[dict[str, Any]] | None = None


Turn = UserTurn | AssistantTurn | SystemTurn


class Tool(msgspec.Struct, frozen=True):
    """The last three fields are of tools that Anthropic describes (``client_tools``). Some tools that only
    its servers run have no name."""

    name: str = ""
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None
    defer_loading: bool | None = None
    display_width_px: PositiveInt | None = None
    display_height_px: PositiveInt | None = None
    enable_zoom: bool | None = None


class AutoChoice(msgspec.Struct, frozen=True, tag="auto"):
    disable_parallel_tool_use: bool | None = None


class AnyChoice(msgspec.Struct, frozen=True, tag="any"):
    disable_parallel_tool_use: bool | None = None


class ToolChoice(msgspec.Struct, frozen=True, tag="tool"):
    name: NonEmpty
    disable_parallel_tool_use: bool | None = None


class NoChoice(msgspec.Struct, frozen=True, tag="none"):
    disable_parallel_tool_use: bool | None = None


Choice = AutoChoice | AnyChoice | ToolChoice | NoChoice


class ThinkingConfig(msgspec.Struct, frozen=True):
    """``type``: ``enabled``, ``disabled``; any other leaves it to the model, as templates know no more. Its
    ``budget_tokens`` are the model's own to bound. ``display``: ``omitted`` where no thoughts are to be
    shown."""

    type: NonEmpty
    display: str | None = None


class JsonFormat(msgspec.Struct, frozen=True, tag="json_schema"):
    schema: dict[str, Any]


class OutputConfig(msgspec.Struct, frozen=True):
    effort: str | None = None
    format: JsonFormat | None = None


class Metadata(msgspec.Struct, frozen=True):
    user_id: str | None = None


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """What ``/v1/messages/count_tokens`` takes: all that becomes tokens."""

    model: NonEmpty
    messages: Annotated[list[Turn], msgspec.Meta(min_length=1)]
    system: str | list[Text] | None = None
    tools: list[Tool] | None = None
    tool_choice: Choice | None = None
    thinking: ThinkingConfig | None = None
    output_config: OutputConfig | None = None
    output_format: JsonFormat | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class MessagesRequest(Prompt, frozen=True, kw_only=True):
    max_tokens: PositiveInt
    metadata: Metadata | None = None
    stop_sequences: list[NonEmpty] | None = None
    stream: bool | None = None
    temperature: Level | None = None
    top_p: Share | None = None
    top_k: Annotated[int, msgspec.Meta(ge=0)] | None = None
    mcp_servers: list[Any] | None = None
    container: Any = None
    compaction: Any = None
    thread: Any = None
