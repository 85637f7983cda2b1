package prompt

import "slices"

// Findings tell, in words and by template name, what probing found out about how a template wants messages to look.
func (f *Formatter) Findings() map[string][]string {
	all := make(map[string][]string, len(f.byName))
	for name, t := range f.byName {
		all[name] = slices.Concat(f.content.findings(), t.findings())
	}
	return all
}

func (u contentUse) findings() []string {
	switch {
	case u.partsOnly:
		return []string{"content goes in as a list of parts: the template does not print a plain string"}
	case u.media == mediaNumbered:
		return []string{"content goes in as text, with <|image_1|> for the first image"}
	case u.media == mediaTagged:
		return []string{"content goes in as text, with <image> for each image"}
	case u.media == mediaDropped:
		return []string{"content goes in as text, without images: the template passes text through"}
	}
	return []string{"content goes in as text, or as a list of parts where it has images"}
}

func (t *form) findings() []string {
	var list []string
	if t.stringArguments {
		list = append(list, "arguments of past tool calls go in as the text that they came as")
	} else {
		list = append(list, "arguments of past tool calls go in as objects")
	}
	if t.needsContent {
		list = append(list, "past tool calls without content get an empty one: the template fails without")
	}
	if t.oneSystem {
		list = append(list, "leading system turns are merged, later ones become user turns: the template refuses them")
	}
	if t.alternating {
		list = append(list, "neighbouring user turns are merged: the template refuses them")
	}
	switch t.reasoning {
	case reasoningUnread:
		list = append(list, "reasoning of past turns goes before their content in <think> blocks: the template does not read it")
	case reasoningString:
		list = append(list, "reasoning of past turns goes in as one text")
	case reasoningAny:
		list = append(list, "reasoning of past turns goes in as it came")
	}
	return list
}
