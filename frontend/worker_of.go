package frontend

import (
	"signalbox/model"
	"signalbox/router"
)

// WorkerOf returns what routing needs to know of a member of a worker set, from its card.
func WorkerOf(m model.Member) router.Worker { return routerWorker(m) }
