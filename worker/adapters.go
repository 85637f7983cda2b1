package worker

import (
	"fmt"

	"signalbox/discovery"
	"signalbox/model/card"
)

// adapterCard is the card of a LoRA adapter, ready to be registered.
type adapterCard struct {
	suffix string
	text   []byte
}

// adapterCards makes a card for each adapter: the base model's, under the adapter's name.
func adapterCards(base *card.Card, names []string) ([]adapterCard, error) {
	list := make([]adapterCard, 0, len(names))
	for _, name := range names {
		adapter := *base
		adapter.DisplayName, adapter.Slug, adapter.Aliases = name, card.Slug(name), nil
		adapter.SourcePath = base.Source()
		adapter.LoRA = &card.LoRA{Name: name}
		if adapter.Slug == "" {
			return nil, fmt.Errorf("LoRA adapter %q: the name needs a letter or a digit", name)
		}
		text, err := adapter.Marshal()
		if err != nil {
			return nil, err
		}
		list = append(list, adapterCard{adapter.Slug, text})
	}
	return list, nil
}

// modelRecords are the records of the base model and of its adapters.
func modelRecords(id uint64, e discovery.EndpointID, base []byte, adapters []adapterCard) []*discovery.Model {
	list := []*discovery.Model{{Namespace: e.Namespace, Component: e.Component, Endpoint: e.Name, InstanceID: id, Card: base}}
	for _, adapter := range adapters {
		list = append(list, &discovery.Model{Namespace: e.Namespace, Component: e.Component, Endpoint: e.Name, InstanceID: id, Card: adapter.text, Suffix: adapter.suffix})
	}
	return list
}
