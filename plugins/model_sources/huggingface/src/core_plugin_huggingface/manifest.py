"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSourceSpec, WeightLoaderSpec

LOCAL = ModelSourceSpec(
    name="local",
    impl="core_plugin_huggingface.local:LocalSource",
    api=1,
    summary="Files and directories on this machine",
    priority=60,  # a directory named like a hub id is what the user sees, so it is meant
)

HUB = ModelSourceSpec(
    name="hub",
    impl="core_plugin_huggingface.hub:HubSource",
    api=1,
    summary="Hugging Face hub ids (organisation/name), downloaded once and cached",
)

SAFETENSORS = WeightLoaderSpec(
    name="safetensors",
    impl="core_plugin_huggingface.reader:SafetensorsReader",
    api=1,
    summary="Directories in Hugging Face's layout with safetensors files",
    patterns=("config.json",),
)

DUMMY = WeightLoaderSpec(
    name="dummy",
    impl="core_plugin_huggingface.reader:DummyReader",
    api=1,
    summary="A config.json alone: weights are made up",
    patterns=("config.json",),
    invents=True,
)
