// Package kimi writes the prompts of Kimi K3, whose turns are tags made of special tokens. It knows the wire format of turns, tool
// declarations, calls and thinking, and nothing of requests.
package kimi
