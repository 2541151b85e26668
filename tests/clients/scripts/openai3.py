"""Clients that work with version 3 of ``openai``, each as its documentation begins."""

import asyncio

from features import ABOUT, ANSWER, EMBEDDER, KEY, MODEL, QUESTION, SCHEMA, URL, V1, main, weather
from pydantic import BaseModel

HI = [{"role": "user", "content": "Say something."}]
ASK = [{"role": "user", "content": QUESTION}]


class Place(BaseModel):
    """Where it is, and how warm."""

    city: str
    degrees: int


# openai


def gpt():
    import openai

    return openai.OpenAI(base_url=V1, api_key=KEY, max_retries=0)


def gpt_text():
    chat = gpt().chat.completions.create(model=MODEL, messages=HI)
    assert chat.choices[0].message.content
    assert chat.usage.completion_tokens > 1
    assert gpt().completions.create(model=MODEL, prompt="hi", max_tokens=5).choices[0].text


def responses_text():
    response = gpt().responses.create(model=MODEL, input="Say something.")
    assert response.output_text
    assert response.usage.output_tokens > 1


def gpt_stream():
    chunks = gpt().chat.completions.create(model=MODEL, messages=HI, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def responses_stream():
    with gpt().responses.stream(model=MODEL, input="Say something.") as stream:
        said = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        assert said == stream.get_final_response().output_text != ""


FUNCTION = {"name": "weather", "description": ABOUT, "parameters": SCHEMA}


def gpt_tools():
    tools = [{"type": "function", "function": FUNCTION}]
    with gpt().chat.completions.stream(model=MODEL, messages=ASK, tools=tools) as stream:
        message = stream.get_final_completion().choices[0].message
    (call,) = message.tool_calls
    assert (call.function.name, call.function.arguments) == ("weather", '{"city": "Paris"}')
    result = {"role": "tool", "tool_call_id": call.id, "content": weather("Paris")}
    messages = [*ASK, message.to_dict(), result]
    end = gpt().chat.completions.create(model=MODEL, messages=messages, tools=tools)
    assert end.choices[0].message.content == ANSWER


def responses_tools():
    tools = [{"type": "function", **FUNCTION, "strict": False}]
    first = gpt().responses.create(model=MODEL, input=QUESTION, tools=tools)
    (call,) = [item for item in first.output if item.type == "function_call"]
    assert (call.name, call.arguments) == ("weather", '{"city": "Paris"}')
    result = {"type": "function_call_output", "call_id": call.call_id, "output": weather("Paris")}
    end = gpt().responses.create(model=MODEL, input=[result], tools=tools, previous_response_id=first.id)
    assert end.output_text == ANSWER


def gpt_structured():
    chat = gpt().chat.completions.parse(model=MODEL, messages=HI, response_format=Place)
    assert chat.choices[0].message.parsed == Place(city="word", degrees=1)


def responses_structured():
    response = gpt().responses.parse(model=MODEL, input="Say something.", text_format=Place)
    assert response.output_parsed == Place(city="word", degrees=1)


def gpt_embeddings():
    vectors = gpt().embeddings.create(model=EMBEDDER, input=["one", "two"]).data  # base64 on the wire
    assert [len(each.embedding) for each in vectors] == [32, 32]


# anthropic


def claude():
    import anthropic

    return anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0)


ANTHROPIC = {"model": MODEL, "max_tokens": 500}


def claude_text():
    message = claude().messages.create(messages=HI, system="Be short.", **ANTHROPIC)
    assert message.content[0].text
    assert message.usage.output_tokens > 1


def claude_stream():
    with claude().messages.stream(messages=HI, **ANTHROPIC) as stream:
        text = "".join(stream.text_stream)
        assert text == stream.get_final_text() != ""


def claude_tools():
    tools = [{"name": "weather", "description": ABOUT, "input_schema": SCHEMA}]
    with claude().messages.stream(messages=ASK, tools=tools, **ANTHROPIC) as stream:
        message = stream.get_final_message()
    (call,) = [block for block in message.content if block.type == "tool_use"]
    assert (call.name, call.input, message.stop_reason) == ("weather", {"city": "Paris"}, "tool_use")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": weather("Paris")}
    turns = [
        *ASK,
        {"role": "assistant", "content": [block.to_dict() for block in message.content]},
        {"role": "user", "content": [result]},
    ]
    end = claude().messages.create(messages=turns, tools=tools, **ANTHROPIC)
    assert end.content[0].text == ANSWER
    claude_tool_runner()


def claude_tool_runner():
    from anthropic import beta_tool

    tools = [beta_tool(weather, description=ABOUT, input_schema=SCHEMA)]
    end = claude().beta.messages.tool_runner(messages=ASK, tools=tools, **ANTHROPIC).until_done()
    assert end.content[0].text == ANSWER


def claude_structured():
    message = claude().messages.parse(messages=HI, output_format=Place, **ANTHROPIC)
    assert message.parsed_output == Place(city="word", degrees=1)


def claude_count():
    counted = claude().messages.count_tokens(model=MODEL, messages=HI)
    assert counted.input_tokens > 1


# LangChain


def langchain_model():
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model=MODEL, base_url=V1, api_key=KEY, max_retries=0)


def langchain_claude():
    from langchain_anthropic import ChatAnthropic

    return ChatAnthropic(model=MODEL, base_url=URL, api_key=KEY, max_retries=0)


def langchain_text(make):
    assert make().invoke("Say something.").content


def langchain_stream(make):
    assert "".join(str(chunk.text) for chunk in make().stream("Say something."))


def langchain_tools(make):
    from langchain.agents import create_agent

    done = create_agent(make(), tools=[weather]).invoke({"messages": ASK})
    assert done["messages"][-1].text == ANSWER
    assert done["messages"][-2].content == "sunny in Paris"


def langchain_structured(make):
    assert make().with_structured_output(Place).invoke("Say something.") == Place(city="word", degrees=1)


def langchain_embeddings(**options):
    from langchain_openai import OpenAIEmbeddings

    embeddings = OpenAIEmbeddings(model=EMBEDDER, base_url=V1, api_key=KEY, max_retries=0, **options)
    assert len(embeddings.embed_query("one two")) == 32


# pydantic-ai


def pydantic_model():
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=V1, api_key=KEY))


def pydantic_text():
    from pydantic_ai import Agent

    assert Agent(pydantic_model()).run_sync("Say something.").output


def pydantic_stream():
    from pydantic_ai import Agent

    async def run():
        async with Agent(pydantic_model()).run_stream("Say something.") as stream:
            return [text async for text in stream.stream_text()]

    assert asyncio.run(run())[-1]


def pydantic_tools():
    from pydantic_ai import Agent

    assert Agent(pydantic_model(), tools=[weather]).run_sync(QUESTION).output == ANSWER


def pydantic_structured():
    from pydantic_ai import Agent

    done = Agent(pydantic_model(), output_type=Place).run_sync("Say something.")
    assert done.output == Place(city="word", degrees=1)


def pydantic_embeddings():
    from pydantic_ai import Embedder
    from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIEmbeddingModel(EMBEDDER, provider=OpenAIProvider(base_url=V1, api_key=KEY))
    assert len(Embedder(model).embed_query_sync("one two").embeddings[0]) == 32


# openai-agents: Responses by default


def agent(**options):
    import openai
    from agents import Agent, OpenAIResponsesModel, set_tracing_disabled

    set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=V1, api_key=KEY, max_retries=0)
    return Agent(name="agent", model=OpenAIResponsesModel(MODEL, client), **options)


def agents_text():
    from agents import Runner

    assert Runner.run_sync(agent(), "Say something.").final_output


def agents_stream():
    from agents import Runner

    async def run():
        result = Runner.run_streamed(agent(), "Say something.")
        kinds = [event.type async for event in result.stream_events()]
        return result.final_output, kinds

    text, kinds = asyncio.run(run())
    assert text
    assert kinds.count("raw_response_event") > 5


def agents_tools():
    from agents import Runner, function_tool

    assert Runner.run_sync(agent(tools=[function_tool(weather)]), QUESTION).final_output == ANSWER


def agents_structured():
    from agents import Runner

    done = Runner.run_sync(agent(output_type=Place), "Say something.")
    assert done.final_output == Place(city="word", degrees=1)


CLIENTS = {
    "openai": {
        "text": gpt_text,
        "stream": gpt_stream,
        "tools": gpt_tools,
        "structured": gpt_structured,
        "embeddings": gpt_embeddings,
    },
    "openai-responses": {
        "text": responses_text,
        "stream": responses_stream,
        "tools": responses_tools,
        "structured": responses_structured,
    },
    "anthropic": {
        "text": claude_text,
        "stream": claude_stream,
        "tools": claude_tools,
        "structured": claude_structured,
        "count_tokens": claude_count,
    },
    "langchain-openai": {
        "text": lambda: langchain_text(langchain_model),
        "stream": lambda: langchain_stream(langchain_model),
        "tools": lambda: langchain_tools(langchain_model),
        "structured": lambda: langchain_structured(langchain_model),
        "embeddings": langchain_embeddings,
        "embeddings as texts": lambda: langchain_embeddings(check_embedding_ctx_length=False),
    },
    "langchain-anthropic": {
        "text": lambda: langchain_text(langchain_claude),
        "stream": lambda: langchain_stream(langchain_claude),
        "tools": lambda: langchain_tools(langchain_claude),
        "structured": lambda: langchain_structured(langchain_claude),
    },
    "pydantic-ai": {
        "text": pydantic_text,
        "stream": pydantic_stream,
        "tools": pydantic_tools,
        "structured": pydantic_structured,
        "embeddings": pydantic_embeddings,
    },
    "openai-agents": {
        "text": agents_text,
        "stream": agents_stream,
        "tools": agents_tools,
        "structured": agents_structured,
    },
}

main(CLIENTS)
