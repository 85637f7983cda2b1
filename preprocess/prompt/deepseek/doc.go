// Package deepseek writes the prompts of the DeepSeek models whose repositories have an encoder in place of a chat template:
// V3.2, V4 and V4.1. It knows the wire format of their turns, tool calls and thinking, and nothing of requests.
package deepseek
