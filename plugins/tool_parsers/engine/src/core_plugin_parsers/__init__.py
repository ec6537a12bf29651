"""Output parsers as data: a `Family` says where reasoning and calls stand in a text and how a call is written."""

from core_plugin_parsers.brace_calls import BraceCalls
from core_plugin_parsers.either import Either
from core_plugin_parsers.family import Block, Family
from core_plugin_parsers.headers import Headers
from core_plugin_parsers.json_calls import JsonCalls
from core_plugin_parsers.named_calls import NamedCalls
from core_plugin_parsers.nested_calls import NestedCalls
from core_plugin_parsers.pair_calls import PairCalls
from core_plugin_parsers.prose import Prose
from core_plugin_parsers.python_calls import PythonCalls
from core_plugin_parsers.reader import CallForm, CallSink, Reader
from core_plugin_parsers.written import Written
from core_plugin_parsers.xml_calls import Element, XmlCalls

__all__ = [
    "Block",
    "BraceCalls",
    "CallForm",
    "CallSink",
    "Either",
    "Element",
    "Family",
    "Headers",
    "JsonCalls",
    "NamedCalls",
    "NestedCalls",
    "PairCalls",
    "Prose",
    "PythonCalls",
    "Reader",
    "Written",
    "XmlCalls",
]
