"""Three addresses."""

from django.urls import path

from shop import views

urlpatterns = [
    path("orders", views.orders),
    path("newsletters", views.newsletters),
    path("runs/<str:run_id>", views.run),
]
