"""A device with memory of its own that is none: CPU tensors, whose work and copies are carried out as late as is legal.

A host array that is written before the device has read it, a result that is read before it is there, a number that a
captured graph keeps although it changes: on a real device they are wrong now and then, here they are wrong every time.
Tests install it as a platform by an entry point `fake = "core_testing.fakedevice.manifest:FAKE"`.
"""
