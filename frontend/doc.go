// Package frontend joins the rooms into a serving frontend: discovery finds workers, the model room admits them, each set gets
// a pipeline with a router, and the HTTP APIs find pipelines by model name. Everything that knows more than one room is here;
// nothing here knows how a room does its work, nor where settings come from.
package frontend
