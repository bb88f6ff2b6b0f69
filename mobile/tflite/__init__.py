"""Everything that makes or edits a flatbuffer: conversion, length buckets, weights."""
