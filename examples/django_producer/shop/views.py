"""Starting runs from views: inside the view's own transaction, or after it."""

import json

from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse

from rival_client import RunNotFound
from shop.models import Order
from shop.rival import rival


def orders(request: HttpRequest) -> JsonResponse:
    given = json.loads(request.body)
    with transaction.atomic():
        order = Order.objects.create(customer=given["customer"], total=given["total"])
        run_id = f"order-{order.pk}"
        # psycopg's own connection, with Django's open transaction on it.
        rival().run("ship-order", {"order": order.pk, "total": order.total}, run_id, connection=connection.connection)
        if order.total < 0:
            raise ValueError("refused after all: neither the order nor its run is kept")
    return JsonResponse({"run": run_id}, status=202)


def newsletters(request: HttpRequest) -> JsonResponse:
    customer = json.loads(request.body)["customer"]
    with transaction.atomic():
        order = Order.objects.filter(customer=customer).latest("pk")
        transaction.on_commit(lambda: rival().run("ship-order", {"order": order.pk, "total": 0}, f"gift-{order.pk}"))
    return JsonResponse({"run": f"gift-{order.pk}"}, status=202)


def run(request: HttpRequest, run_id: str) -> JsonResponse:
    try:
        state = rival().state(run_id, fold=10)
    except RunNotFound as error:
        return JsonResponse({"error": str(error)}, status=404)
    return JsonResponse({"status": state.status, "step": state.current_step, "result": state.result})
