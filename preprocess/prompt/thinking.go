package prompt

import "signalbox/preprocess/chattemplate"

// Thinking is what a request wants of the model's reasoning once its several ways of saying so agree; parsers of the answer need it.
type Thinking struct {
	// On is the switch; nil when nothing was said.
	On *bool
	// Mode is thinking_mode and Effort the reasoning effort, "" when absent.
	Mode, Effort string
	// ForceContent asks for the reasoning as content where there is no other (force_nonempty_content).
	ForceContent bool
}

// Thinking returns what the request wants. Arguments that cannot be read say nothing: rendering refuses them.
func (o Options) Thinking(request Request) Thinking {
	f := &Formatter{options: o}
	a, err := f.arguments(request)
	if err != nil {
		return Thinking{}
	}
	force := a.get("force_nonempty_content")
	t := Thinking{Mode: a.get(thinkingModeKey).Str(), ForceContent: force.Kind() == chattemplate.KindBool && force.IsTrue()}
	if effort := a.get(effortKey); effort.Kind() == chattemplate.KindString {
		t.Effort = effort.Str()
	}
	if on, known := a.spelledOut(); known {
		t.On = &on
	}
	return t
}
